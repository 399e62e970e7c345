// SPDX-License-Identifier: Apache-2.0
// Opens the tokenizer of a folder or file, of whatever kind.
#pragma once

#include "model.hpp"

#include <filesystem>

namespace coeus {

/// A tokenizer, with a hash of everything that it was read from.
struct OpenedTokenizer {
    std::unique_ptr<const TokenizerModel> model;
    uint64_t hash;
    std::string kind = {};  ///< "byte-level BPE (tokenizer.json)"
};

/// Opens a folder's tokenizer.json, else its SentencePiece or tiktoken file, else vocab.json and merges.txt;
/// or one of these files itself. ConfigError: there is none, there are several, or it is damaged or of an
/// unknown kind.
OpenedTokenizer open_tokenizer(const std::filesystem::path& place);

/// True if the path is a file, or a folder with one tokenizer.
bool holds_tokenizer(const std::filesystem::path& place);

}  // namespace coeus
