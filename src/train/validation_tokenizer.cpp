// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/validation_tokenizer.hpp"

#include "coeus/base/error.hpp"

#include <utility>

namespace coeus {

Tokenizer validation_tokenizer(const Config& config, const DecoderConfig& model, const char* option) {
    if (!config.validation.enable)
        throw ConfigError("{}: only validations read it, and validation.enable = false", option);
    Tokenizer tokenizer(config.model.tokenizer());
    if (tokenizer.vocab_size() > model.vocab)
        throw ConfigError(
            "model.vocab_size = {}: the tokenizer in {} has {} tokens, so it cannot encode {}; "
            "set model.vocab_size = {} or more",
            model.vocab, tokenizer.folder(), tokenizer.vocab_size(), option, tokenizer.vocab_size());
    return tokenizer;
}

}  // namespace coeus
