// SPDX-License-Identifier: Apache-2.0
// The models by name. A new family needs one file and a line in registry.cpp.
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"
#include "coeus/state/param.hpp"

#include <string_view>
#include <vector>

namespace coeus {

/// The role of a parameter in the model, on which its initial values depend.
enum class WeightRole : uint8_t { embedding, output, norm, attention_in, attention_out, gate, up, down };

struct ModelFamily {
    std::string name;                        ///< "llama3"
    std::vector<DecoderConfig> flavors;      ///< those of torchtitan, the smallest first
    std::vector<std::string> architectures;  ///< in config.json of Hugging Face folders: "LlamaForCausalLM"

    /// The model of a config.json. ConfigError naming file and key: a missing or wrong value, a feature
    /// that is not implemented. The caller sets name and flavour.
    DecoderConfig (*from_hub)(const JsonView& json);
    /// Sets the keys of config.json for this model, including the architecture. A field that config.json
    /// cannot express may be missing: the caller compares with the result of from_hub.
    void (*to_hub)(Json& json, const DecoderConfig& config);
    /// The tensors of a Hugging Face folder that contain the rows of a parameter with this shape, each
    /// row once.
    std::vector<HubPlace> (*hub_places)(const std::string& parameter, const Shape& shape,
                                        const DecoderConfig& config);
    /// True for a tensor in such a folder that is not a parameter.
    bool (*hub_ignores)(const std::string& tensor, const DecoderConfig& config);
    /// Initial values of a parameter. `layer`: number of its layer; 0 if it is not in a layer.
    Init (*init)(WeightRole role, int64_t layer, const DecoderConfig& config);
};

const std::vector<ModelFamily>& model_families();
/// ConfigError with the nearest name, or saying that a known family is not implemented yet.
const ModelFamily& find_family(std::string_view name);
/// ConfigError with the nearest flavour.
const DecoderConfig& find_flavor(const ModelFamily& family, std::string_view flavor);

}  // namespace coeus
