// SPDX-License-Identifier: Apache-2.0
// SentencePiece's .model files (Llama 2, T5, Gemma, ...), read with the SentencePiece library.
#pragma once

#include "bpe_model.hpp"
#include "model.hpp"

#include <string>
#include <vector>

namespace coeus {

/// `content`: the content of `file`. `added`: tokens that other files of its folder add; those whose ids the
/// model has are ignored. `legacy`: the text after an added token begins with a space, as every text does.
/// ConfigError: the library cannot read it.
std::unique_ptr<const TokenizerModel> make_sentencepiece(const std::string& file, const std::string& content,
                                                         const std::vector<BpeDescription::Added>& added = {},
                                                         bool legacy = true);

/// Those of `added` that the .model file lacks, by id.
std::vector<BpeDescription::Added> missing_in_sentencepiece(const std::string& file,
                                                            const std::string& content,
                                                            const std::vector<BpeDescription::Added>& added);

}  // namespace coeus
