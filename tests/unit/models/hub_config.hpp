// SPDX-License-Identifier: Apache-2.0
// A config.json with given keys, and the message if it is refused.
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/models/hub_model.hpp"
#include "support/support.hpp"

#include <string>

namespace coeus::test {

/// Writes a config.json with the text of a JSON object without its braces. Returns the folder.
inline std::string config_folder(const TemporaryFolder& folder, const std::string& body) {
    write_file(folder / "config.json", "{" + body + "}");
    return folder.path();
}

/// The keys that a Llama must have.
inline const std::string minimal_llama =
    R"("architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
       "intermediate_size": 96, "vocab_size": 272)";

inline std::string message_of(const std::string& folder, const std::string& family = "") {
    try {
        model_from_hub(folder, family);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "read without complaint";
}

/// A model of four layers with the keys that Qwen 2, Qwen 3 and Mistral share.
inline std::string four_layers(const std::string& architecture) {
    return fmt::format(R"("architectures": ["{}"], "hidden_size": 64, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 272,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": true, "max_position_embeddings": 512)",
                       architecture);
}

}  // namespace coeus::test
