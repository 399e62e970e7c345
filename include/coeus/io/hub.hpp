// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders: weights in safetensors files, read in parts. Where a parameter lies in their tensors
// is said by the models, as places; here is the reading.
#pragma once

#include "coeus/device/device.hpp"
#include "coeus/file/hub_place.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/io/held_block.hpp"

#include <functional>
#include <string>
#include <vector>

namespace coeus {

/// True for a folder with a config.json.
bool is_hub_folder(const std::string& path);

/// One parameter, where it lies in the folder, and where this process wants it.
struct HubTensor {
    Shape shape;                            ///< global
    std::vector<HubPlace> places;           ///< each of its rows in one of them
    std::vector<HeldBlock> blocks = {};     ///< in our order; any float type
    const Device* device = &host_device();  ///< where the blocks are; dense rows, but on the host
};

/// True for a tensor of a folder that belongs to no parameter.
using HubIgnores = std::function<bool(const std::string& tensor)>;

/// Reads one of them, of these weights. ConfigError as below. LogicError unless each row lies in one place.
void read_hub_tensor(const std::string& folder, const Safetensors& weights, const HubTensor& tensor);
/// ConfigError if the weights have a tensor that none of these takes and that is not ignored.
void check_hub_weights(const std::string& folder, const Safetensors& weights,
                       const std::vector<HubTensor>& tensors, const HubIgnores& ignores);
/// Reads all of these from a folder. ConfigError: a tensor missing, of another shape or type, or one there
/// that no parameter takes. Not collective.
void load_hub_weights(const std::string& folder, const std::vector<HubTensor>& tensors,
                      const HubIgnores& ignores);

}  // namespace coeus
