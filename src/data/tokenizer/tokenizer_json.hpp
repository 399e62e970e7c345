// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json, of the kinds that hold a byte-level BPE.
#pragma once

#include "byte_bpe.hpp"
#include "tokenizer_config.hpp"

#include <string>

namespace coeus {

/// `content` is the text of `file`. ConfigError: damaged, or of a kind that is not known, named.
ByteBpeDescription read_tokenizer_json(const std::string& file, const std::string& content,
                                       const TokenizerConfig& config);

}  // namespace coeus
