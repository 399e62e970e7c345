// SPDX-License-Identifier: Apache-2.0
// tiktoken's files: each line has a token in base64 and its rank, which is its id and the order of merging.
// They contain neither the regular expression nor special tokens. These are known for three kinds:
//   llama3  Llama 3: 128,000 ranks, then 256 special tokens from <|begin_of_text|>
//   llama4  Llama 4: 200,000 ranks, then 2048 special tokens from <|begin_of_text|>
//   o200k   o200k_base: 199,998 ranks; <|endoftext|> is 199999, <|endofprompt|> 200018
// The number of ranks determines the kind. For other numbers, tokenizer_config.json in the same folder must
// name it:
//   {"tiktoken": "o200k", "added_tokens_decoder": {"2000": {"content": "<|endoftext|>", "special": true}},
//    "eos_token": "<|endoftext|>"}
// Without added_tokens_decoder, the special tokens are those of the kind, after the last rank.
#pragma once

#include "bpe_model.hpp"
#include "tokenizer_config.hpp"

#include <string>

namespace coeus {

/// True if the first line of a file is a token and its rank.
bool is_tiktoken(const std::string& content);

/// ConfigError: a line is damaged, or neither the number of ranks nor tokenizer_config.json determines a
/// known kind.
BpeDescription read_tiktoken(const std::string& file, const std::string& content,
                             const TokenizerConfig& config);

}  // namespace coeus
