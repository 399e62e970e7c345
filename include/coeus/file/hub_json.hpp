// SPDX-License-Identifier: Apache-2.0
// config.json of a Hugging Face folder. Python's json writes and reads NaN, Infinity and -Infinity, which
// JSON does not have.
#pragma once

#include "coeus/file/json.hpp"

#include <string>

namespace coeus {

/// Reads config.json in a folder. Such numbers become texts ("NaN"), so that only a key whose number is
/// needed is refused for them. ConfigError: as JsonDocument::read().
JsonDocument read_hub_config(const std::string& folder);
/// The text with NaN, Infinity and -Infinity outside of texts put into quotation marks.
std::string with_quoted_numbers(std::string_view json);

}  // namespace coeus
