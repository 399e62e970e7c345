// SPDX-License-Identifier: Apache-2.0
// Hugging Face's tokenizer.json, if it contains a byte-level BPE.
#pragma once

#include "byte_bpe.hpp"
#include "tokenizer_config.hpp"

#include <string>

namespace coeus {

/// `content`: the text of `file`. ConfigError: it is damaged, or of an unsupported kind, which is named.
ByteBpeDescription read_tokenizer_json(const std::string& file, const std::string& content,
                                       const TokenizerConfig& config);

}  // namespace coeus
