// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer_config.json, the part that concerns ids.
#pragma once

#include "byte_bpe.hpp"
#include "coeus/file/json.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

struct TokenizerConfig {
    std::string file;  ///< for messages
    std::optional<std::string> bos, eos;
    std::string tokenizer_class;                   ///< "" where it says none
    std::optional<std::string> tiktoken;           ///< see tiktoken.hpp
    std::vector<ByteBpeDescription::Added> added;  ///< added_tokens_decoder, by id
};

/// Of the file in a folder; all empty where there is none.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

/// An added token as tokenizer.json and tokenizer_config.json write it.
ByteBpeDescription::Added added_token(const JsonView& token, int32_t id);

/// An id below `most_token_ids`. ConfigError: another value.
int32_t token_id(const JsonView& value);

/// A file's bytes. ConfigError: it cannot be read.
std::string content_of(const std::filesystem::path& file);

}  // namespace coeus
