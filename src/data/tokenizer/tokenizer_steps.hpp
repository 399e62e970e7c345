// SPDX-License-Identifier: Apache-2.0
// The parts of Hugging Face's tokenizer.json around its model: normalizer, pre_tokenizer, post_processor,
// decoder.
#pragma once

#include "bpe_model.hpp"
#include "coeus/file/json.hpp"

#include <string>

namespace coeus {

/// Throws ConfigError: FILE: PATH: `what` is not supported; `known`.
[[noreturn]] void not_known(const JsonView& where, const std::string& what, const std::string& known);

/// Reads these parts of a file. Sets options.characters, since the pre-tokenizer decides whether the
/// vocabulary has symbols of bytes or characters. ConfigError: a part is of an unsupported kind, which is
/// named.
void read_steps(const JsonView& root, BpeDescription& out);

}  // namespace coeus
