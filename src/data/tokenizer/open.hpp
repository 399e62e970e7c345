// SPDX-License-Identifier: Apache-2.0
// Opens a tokenizer of any kind, from a folder or file.
#pragma once

#include "model.hpp"

#include <filesystem>

namespace coeus {

/// A tokenizer, with a hash of all content that it was read from.
struct OpenedTokenizer {
    std::unique_ptr<const TokenizerModel> model;
    uint64_t hash;
    uint64_t earlier_hash;  ///< as versions that took Unicode's classes from libraries computed it
    std::string kind = {};  ///< "byte-level BPE (tokenizer.json)"
};

/// Opens one of these files, or the first that a folder contains: tokenizer.json, a SentencePiece or tiktoken
/// file, vocab.json with merges.txt. (If a tokenizer.json was converted from the tokenizer.model of
/// SentencePiece in the same folder, tokenizer.model is opened instead, unless tokenizer.json has more
/// tokens. Tokens that tokenizer_config.json or added_tokens.json add to tokenizer.model are joined with it.)
/// ConfigError: there is none, there are several, or it is damaged or of an unknown kind.
OpenedTokenizer open_tokenizer(const std::filesystem::path& place);

/// True if the path is a file, or a folder with one tokenizer.
bool holds_tokenizer(const std::filesystem::path& place);

}  // namespace coeus
