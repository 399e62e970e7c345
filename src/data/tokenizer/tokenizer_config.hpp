// SPDX-License-Identifier: Apache-2.0
// The part of Hugging Face's tokenizer_config.json that affects ids.
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
    std::string tokenizer_class;                   ///< "" if the file has none
    std::optional<std::string> tiktoken;           ///< see tiktoken.hpp
    std::vector<ByteBpeDescription::Added> added;  ///< added_tokens_decoder, by id
};

/// Reads the file in a folder. All fields are empty if there is no file.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

/// An added token in the format of tokenizer.json and tokenizer_config.json.
ByteBpeDescription::Added added_token(const JsonView& token, int32_t id);

/// An id below `most_token_ids`. ConfigError: the value is not such an id.
int32_t token_id(const JsonView& value);

/// The bytes of a file. ConfigError: it cannot be read.
std::string content_of(const std::filesystem::path& file);

}  // namespace coeus
