// SPDX-License-Identifier: Apache-2.0
// GPT-2's two files: vocab.json (token -> id, in byte symbols) and merges.txt ("left right" on each line).
// The regular expression is GPT-2's. If tokenizer_config.json in the same folder has the tokenizer_class
// Qwen2Tokenizer, the regular expression is Qwen's, and text is normalized to normal form C.
#pragma once

#include "bpe_model.hpp"
#include "tokenizer_config.hpp"

#include <string>

namespace coeus {

/// `vocab`, `merges`: the texts of the files in `folder`. ConfigError: they are damaged, or not a byte-level
/// BPE.
BpeDescription read_vocab_and_merges(const std::string& folder, const std::string& vocab,
                                     const std::string& merges, const TokenizerConfig& config);

}  // namespace coeus
