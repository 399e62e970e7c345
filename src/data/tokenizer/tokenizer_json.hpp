// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json, if its model is BPE, on bytes or on characters (as SentencePiece has it).
#pragma once

#include "bpe_model.hpp"
#include "tokenizer_config.hpp"

#include <string>

namespace coeus {

/// `content`: the text of `file`. ConfigError: it is damaged, or of an unsupported kind, which is named.
BpeDescription read_tokenizer_json(const std::string& file, const std::string& content,
                                   const TokenizerConfig& config);

}  // namespace coeus
