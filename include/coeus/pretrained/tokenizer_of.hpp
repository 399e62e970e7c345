// SPDX-License-Identifier: Apache-2.0
// The tokenizer with which a command reads and writes texts of a pretrained model.
#pragma once

#include "coeus/data/tokenizer.hpp"
#include "coeus/pretrained/pretrained.hpp"

#include <string>

namespace coeus {

/// The tokenizer at `chosen`, the value of --tokenizer; "": the one with which the model was trained.
/// ConfigError: it was not found, or has more tokens than the model's vocabulary.
Tokenizer tokenizer_of(const Pretrained& source, const std::string& chosen);

}  // namespace coeus
