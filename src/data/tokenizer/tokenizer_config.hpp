// SPDX-License-Identifier: Apache-2.0
// The part of Hugging Face's tokenizer_config.json that affects ids.
#pragma once

#include "bpe_model.hpp"
#include "coeus/file/json.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

struct TokenizerConfig {
    std::string file;  ///< for messages
    std::optional<std::string> bos, eos;
    std::string tokenizer_class;               ///< "" if the file has none
    std::optional<std::string> tiktoken;       ///< see tiktoken.hpp
    std::vector<BpeDescription::Added> added;  ///< added_tokens_decoder, by id
    /// added_tokens.json of earlier versions of transformers; empty if there is an added_tokens_decoder.
    std::vector<BpeDescription::Added> added_before;
    bool legacy = true;  ///< SentencePiece puts a space in front of the text after an added token too
};

/// Reads the file in a folder, and added_tokens.json. All fields are empty if the folder has neither.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

/// An added token in the format of tokenizer.json and tokenizer_config.json.
BpeDescription::Added added_token(const JsonView& token, int32_t id);

/// An id below `most_token_ids`. ConfigError: the value is not such an id.
int32_t token_id(const JsonView& value);

/// The bytes of a file. ConfigError: it cannot be read.
std::string content_of(const std::filesystem::path& file);

}  // namespace coeus
