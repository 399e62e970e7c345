// SPDX-License-Identifier: Apache-2.0
// Writes a trained vocabulary as Hugging Face's tokenizer.json and tokenizer_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

struct TrainedTokenizer {
    struct Added {
        int32_t id;
        std::string content;
    };
    std::vector<std::string> patterns;  ///< regular expressions of the pre-tokenizer, in order
    std::vector<std::pair<std::string, int32_t>> vocab;  ///< as byte symbols
    std::vector<std::pair<std::string, std::string>> merges;
    std::vector<Added> added;  ///< special tokens
    std::optional<std::string> bos, eos;
};

/// Writes both files. If there is a BOS, the post-processor adds it before each text, as Llama 3's does.
void write_tokenizer(const TrainedTokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace coeus
