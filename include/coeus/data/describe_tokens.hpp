// SPDX-License-Identifier: Apache-2.0
// Tokens as text for people: for `coeus info`, which shows what a run reads.
#pragma once

#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coeus {

struct TokenStyle {
    bool divides = false;  ///< "|" between tokens; bytes that are only a part of a character as \xNN
    bool colors = false;   ///< masked tokens in grey instead of brackets
};

/// Consecutive tokens of a file.
struct ShownTokens {
    int64_t first = 0;  ///< position of the first
    std::vector<int32_t> ids;
    std::vector<bool> masked = {};  ///< tokens that are not labels; empty: none
};

/// ConfigError, with both hashes, if another tokenizer made the file. A file without a hash passes.
void require_made_by(const TokenFile& file, const Tokenizer& tokenizer);

/// The text, with special tokens written out. A line "--- document 12 ---" precedes each document that begins
/// after the first token. Ids that the tokenizer does not have are shown as <id 12>. Control characters are
/// escaped.
std::string text_of(const ShownTokens& tokens, const TokenFile& file, const Tokenizer& tokenizer,
                    const TokenStyle& style);

}  // namespace coeus
