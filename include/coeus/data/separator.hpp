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

/// Divides the documents of a file that has no list of them: at the given id, or, if it is another program's
/// file, at an id of the tokenizer in `tokenizer` (a path at which there may be none). llm.c begins documents
/// with BOS, or EOS if there is no BOS. In an array of NumPy, documents begin with BOS if it differs from
/// EOS; else they begin with EOS if the file does, and end with it if not. Returns a line for the log on a
/// file of another program: its documents, and that it does not say which tokenizer made it; "" for other
/// files.
std::string divide_documents(TokenFile& file, const GivenSeparator& given, const std::string& tokenizer,
                             int threads = 0);

}  // namespace coeus
