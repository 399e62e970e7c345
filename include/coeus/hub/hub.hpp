// SPDX-License-Identifier: Apache-2.0
// Reads weights from Hugging Face folders (safetensors files), in parts. The models describe the places of
// their parameters in the tensors of a folder. Quantized tensors are decoded while they are read.
#pragma once

#include "coeus/device/device.hpp"
#include "coeus/file/hub_place.hpp"
#include "coeus/hub/hub_weights.hpp"
#include "coeus/state/held_block.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// True for a folder with a config.json.
bool is_hub_folder(const std::string& path);

/// One parameter: its places in the folder, and the blocks of this process that are to be filled.
struct HubTensor {
    Shape shape;  ///< global shape
    /// Each row of the parameter is in exactly one of them. None: the folder has no place for it; it is zero.
    std::vector<HubPlace> places;
    std::vector<HeldBlock> blocks = {};     ///< in Coeus's order of rows; any floating-point type
    const Device* device = &host_device();  ///< where the blocks are; rows are dense unless on the host
};

/// True for a tensor of a folder that belongs to no parameter and is ignored.
using HubIgnores = std::function<bool(const std::string& tensor)>;
/// The tensor of which such a tensor must be a copy; none: it has no meaning.
using HubCopies = std::function<std::optional<HubCopy>(const std::string& tensor)>;

/// What happens to elements that are infinite or NaN.
enum class NotFinite : uint8_t { refuse, keep };

/// Fills the blocks of one parameter from these weights. ConfigError as load_hub_weights(). LogicError unless
/// each row is in exactly one place.
void read_hub_tensor(const HubWeights& weights, const HubTensor& tensor,
                     NotFinite infinite = NotFinite::refuse);
/// ConfigError as load_hub_weights(), without reading elements.
void check_hub_weights(const HubWeights& weights, const std::vector<HubTensor>& tensors,
                       const HubIgnores& ignores);
/// Reads the tensors that are left out as copies, and those that they copy. ConfigError, with both names and
/// the first element: they differ.
void check_hub_copies(const HubWeights& weights, const std::vector<HubTensor>& tensors,
                      const HubCopies& copies);
/// Fills the blocks of all these parameters from a folder. ConfigError: a tensor is missing, has another
/// shape or type, or belongs to no parameter; a quantized one lacks scales that fit it; an element is not
/// finite (with tensor and block). Not collective.
void load_hub_weights(const std::string& folder, const std::vector<HubTensor>& tensors,
                      const HubIgnores& ignores, NotFinite infinite = NotFinite::refuse);

}  // namespace coeus
