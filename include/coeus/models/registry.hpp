// SPDX-License-Identifier: Apache-2.0
// The models by name. A new family is one file and a line in registry.cpp.
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/file/json.hpp"
#include "coeus/models/decoder_config.hpp"
#include "coeus/state/param.hpp"

#include <string_view>
#include <vector>

namespace coeus {

/// What a parameter is for: initial values depend on it.
enum class WeightRole : uint8_t { embedding, output, norm, attention_in, attention_out, gate, up, down };

struct ModelFamily {
    std::string name;                        ///< "llama3"
    std::vector<DecoderConfig> flavors;      ///< torchtitan's, the smallest first
    std::vector<std::string> architectures;  ///< of config.json in Hugging Face folders: "LlamaForCausalLM"

    /// The model of a config.json. ConfigError naming file and key: a missing or wrong value, a feature that
    /// is not built. Name and flavour are set by the caller.
    DecoderConfig (*from_hub)(const JsonView& json);
    /// The keys of config.json that say this model, architecture included. What it cannot say may be missing:
    /// the caller compares with what from_hub reads.
    void (*to_hub)(Json& json, const DecoderConfig& config);
    /// Where a parameter of this shape lies in a Hugging Face folder: all its rows, each once.
    std::vector<HubPlace> (*hub_places)(const std::string& parameter, const Shape& shape,
                                        const DecoderConfig& config);
    /// True for a tensor of such a folder that is not a parameter.
    bool (*hub_ignores)(const std::string& tensor, const DecoderConfig& config);
    /// Initial values of a parameter; `layer`: of its block, 0 for others.
    Init (*init)(WeightRole role, int64_t layer, const DecoderConfig& config);
};

const std::vector<ModelFamily>& model_families();
/// ConfigError with the nearest name; a known family that is not built yet is named as such.
const ModelFamily& find_family(std::string_view name);
/// ConfigError with the nearest flavour.
const DecoderConfig& find_flavor(const ModelFamily& family, std::string_view flavor);

}  // namespace coeus
