// SPDX-License-Identifier: Apache-2.0
// Documents of token files that have no list of them (llm.c, NumPy): an id divides them.
#pragma once

#include "coeus/data/token_file.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace coeus {

/// The id that a user names; at most one of the two.
struct GivenSeparator {
    std::optional<int64_t> bos_id, eos_id;
};

/// A separator, and in words where it comes from.
struct FoundSeparator {
    Separator separator;
    std::string origin;
};

/// What divides a file that has no list of its documents: the given id, or, for another program's file, an id
/// of the tokenizer in `tokenizer` (a path at which there may be none). llm.c begins documents with BOS, or
/// EOS if there is no BOS. In an array of NumPy, documents begin with BOS if it differs from EOS; else they
/// begin with EOS if the file does, and end with it if not. Nothing for a file with a list, or if no id is
/// known.
std::optional<FoundSeparator> find_separator(const TokenFile& file, const GivenSeparator& given,
                                             const std::string& tokenizer);

/// Divides a file at what find_separator() finds, and counts its documents. Returns a line for the log on a
/// file of another program, or one that was divided: its documents, and that it does not say which tokenizer
/// made it;
/// "" for other files.
std::string divide_documents(TokenFile& file, const GivenSeparator& given, const std::string& tokenizer,
                             int threads = 0);

}  // namespace coeus
