// SPDX-License-Identifier: Apache-2.0
// A trained vocabulary as Hugging Face's tokenizer.json and tokenizer_config.json.
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
    std::vector<std::string> patterns;                   ///< of the pre-tokenizer, in order
    std::vector<std::pair<std::string, int32_t>> vocab;  ///< in byte symbols
    std::vector<std::pair<std::string, std::string>> merges;
    std::vector<Added> added;  ///< special tokens
    std::optional<std::string> bos, eos;
};

/// Writes both files. The post-processor adds BOS in front, as Llama 3's does, where there is a BOS.
void write_tokenizer(const TrainedTokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace coeus
