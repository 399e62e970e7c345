// SPDX-License-Identifier: Apache-2.0
// Which kind of tokenizer a folder or file holds.
#pragma once

#include "model.hpp"

#include <filesystem>

namespace coeus {

/// A tokenizer and a hash of everything that it was read from.
struct OpenedTokenizer {
    std::unique_ptr<const TokenizerModel> model;
    uint64_t hash;
    std::string kind = {};  ///< "byte-level BPE (tokenizer.json)"
};

/// A folder's tokenizer.json, else its SentencePiece or tiktoken file, else vocab.json and merges.txt; or one
/// of these files itself. ConfigError: nothing of the kind, more than one, damaged, of an unknown kind.
OpenedTokenizer open_tokenizer(const std::filesystem::path& place);

/// True where a folder holds one tokenizer, or the path is a file.
bool holds_tokenizer(const std::filesystem::path& place);

}  // namespace coeus
