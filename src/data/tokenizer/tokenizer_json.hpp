// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json and tokenizer_config.json: what they say, without behaviour.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

struct TokenizerFile {
    struct Added {
        int32_t id;
        std::string content;
        bool special, normalized;
    };
    std::vector<std::string> patterns;                   ///< of the pre-tokenizer, in order
    std::vector<std::pair<std::string, int32_t>> vocab;  ///< in byte symbols
    std::vector<std::pair<std::string, std::string>> merges;
    bool ignore_merges = false;
    std::vector<Added> added;
    std::optional<std::string> bos, eos;
    std::string file;     ///< tokenizer.json's path, for messages
    std::string content;  ///< its text, for the hash
};

/// ConfigError: missing, damaged, or a kind that is not built yet, named.
TokenizerFile read_tokenizer(const std::filesystem::path& folder);

/// Writes both files. The post-processor adds BOS in front, as Llama 3's does, where there is a BOS.
void write_tokenizer(const TokenizerFile& tokenizer, const std::filesystem::path& folder);

}  // namespace coeus
