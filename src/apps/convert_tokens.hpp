// SPDX-License-Identifier: Apache-2.0
// coeus convert for token files.
#pragma once

#include "coeus/config/command_flags.hpp"

#include <string>

namespace coeus::apps {

/// True if `source` is a token file of any format, which convert_tokens() converts.
bool is_source_of_tokens(const std::string& source);
/// Converts flags.words()[0] to flags.words()[1]. ConfigError: a target that ends neither with .h5 nor with
/// .idx, a flag that is for weights, or an error of reading.
void convert_tokens(const Flags& flags);

}  // namespace coeus::apps
