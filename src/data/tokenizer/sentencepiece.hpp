// SPDX-License-Identifier: Apache-2.0
// SentencePiece's .model files (Llama 2, T5, Gemma, ...), through SentencePiece's own library.
#pragma once

#include "model.hpp"

#include <string>

namespace coeus {

/// `content` is what `file` holds. ConfigError where the library does not take it.
std::unique_ptr<const TokenizerModel> make_sentencepiece(const std::string& file, const std::string& content);

}  // namespace coeus
