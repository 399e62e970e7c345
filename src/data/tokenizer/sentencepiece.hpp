// SPDX-License-Identifier: Apache-2.0
// SentencePiece's .model files (Llama 2, T5, Gemma, ...), read with the SentencePiece library.
#pragma once

#include "model.hpp"

#include <string>

namespace coeus {

/// `content`: the content of `file`. ConfigError if the library cannot read it.
std::unique_ptr<const TokenizerModel> make_sentencepiece(const std::string& file, const std::string& content);

}  // namespace coeus
