// SPDX-License-Identifier: Apache-2.0
// tiktoken's files: each line a token in base64 and its rank, which is its id and the order of merging. They
// have neither expression nor special tokens; these are known of
//   llama3  Llama 3: 128,000 ranks, then 256 special tokens from <|begin_of_text|>
//   o200k   o200k_base: 199,998 ranks; <|endoftext|> is 199999, <|endofprompt|> 200018
// The number of ranks tells which; for another number tokenizer_config.json beside the file does:
//   {"tiktoken": "o200k", "added_tokens_decoder": {"2000": {"content": "<|endoftext|>", "special": true}},
//    "eos_token": "<|endoftext|>"}
// Without added_tokens_decoder the special tokens are those of the kind, behind the last rank.
#pragma once

#include "byte_bpe.hpp"
#include "tokenizer_config.hpp"

#include <string>

namespace coeus {

/// True where a file's first line is a token and its rank.
bool is_tiktoken(const std::string& content);

/// ConfigError: a damaged line; a number of ranks of which no kind is known, without a word in
/// tokenizer_config.json.
ByteBpeDescription read_tiktoken(const std::string& file, const std::string& content,
                                 const TokenizerConfig& config);

}  // namespace coeus
