// SPDX-License-Identifier: Apache-2.0
// The models by name. A new family is one file (its table of flavours and its Hugging Face names) and a line
// in registry.cpp.
#pragma once

#include "coeus/models/decoder_config.hpp"

#include <string_view>
#include <vector>

namespace coeus {

/// How a parameter is called and stored in a Hugging Face folder.
struct HubName {
    std::string name;
    int64_t rotated_heads = 0;  ///< > 0: rows are that many heads in half-split order there, interleaved here
};

struct ModelFamily {
    std::string name;
    std::vector<DecoderConfig> flavors;
    /// Hugging Face's architecture ("LlamaForCausalLM") and names of our parameters.
    std::string hub_architecture;
    HubName (*hub_name)(const std::string& parameter, const DecoderConfig& config);
};

const std::vector<ModelFamily>& model_families();
/// ConfigError with the nearest name; a known family that is not built yet is named as such.
const ModelFamily& find_family(std::string_view name);
/// ConfigError with the nearest flavour.
const DecoderConfig& find_flavor(const ModelFamily& family, std::string_view flavor);

}  // namespace coeus
