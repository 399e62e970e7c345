// SPDX-License-Identifier: Apache-2.0
// Copies a token file of any format into another format.
#pragma once

#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace coeus {

/// Called with the number of tokens that were written so far.
using TokensWritten = std::function<void(int64_t)>;

/// Writes an HDF5 token file of a file of another program: tokens and documents. 16 bits if all ids fit. With
/// a tokenizer, its hash, BOS and EOS. ConfigError: a negative id, or one that the tokenizer does not have.
void write_hdf5_tokens(TokenFile& from, const std::string& to, const Tokenizer* tokenizer,
                       const TokensWritten& written);

/// Writes a Megatron-LM pair: `index` and the file of the same name with .bin. Each document is one sequence.
/// Ids have 16 bits below a vocabulary of 65500, as Megatron-LM chooses, else 32. ConfigError: a negative id,
/// a loss mask, for which a pair has no place, or a document of more than 2^31 - 1 tokens.
void write_megatron_pair(TokenFile& from, const std::string& index, const TokensWritten& written);

}  // namespace coeus
