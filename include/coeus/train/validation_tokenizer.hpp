// SPDX-License-Identifier: Apache-2.0
// The tokenizer for texts of a run's validations.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/models/decoder_config.hpp"

namespace coeus {

/// The tokenizer of the deck, for what `option` names. ConfigError: validation is off; there is no tokenizer;
/// it has more tokens than the model's vocabulary.
Tokenizer validation_tokenizer(const Config& config, const DecoderConfig& model, const char* option);

}  // namespace coeus
