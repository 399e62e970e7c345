// SPDX-License-Identifier: Apache-2.0
// Token files back to text: one line of JSON for each document.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace coeus {

struct DetokenizeOptions {
    int64_t first = 0, last = -1;  ///< documents, the last one included; -1: to the end of the file
    bool special = false;          ///< write special tokens inside a document out; else they are left out
    int threads = 0;               ///< 0: all
};

struct Detokenized {
    int64_t documents = 0;
    int64_t special_left_out = 0;  ///< special tokens inside documents
};

/// The tokens of a document without what the tokenizer puts around documents: its BOS and EOS, or what is
/// there of them.
std::span<const int32_t> without_ends(std::span<const int32_t> document, const Tokenizer& tokenizer);

/// Calls write(lines) with {"text": "..."} and a line end for each document, in order. Bytes that are not
/// UTF-8 become U+FFFD. ConfigError: another tokenizer made the file, there is no such document, or an id is
/// not in the vocabulary.
Detokenized detokenize(const TokenFile& file, const Tokenizer& tokenizer, const DetokenizeOptions& options,
                       FunctionRef<void(std::string_view)> write);

}  // namespace coeus
