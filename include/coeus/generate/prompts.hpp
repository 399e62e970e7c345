// SPDX-License-Identifier: Apache-2.0
// Prompts from a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

struct Prompt {
    std::string text;
    int64_t line;  ///< of the file, from 1
};

/// One prompt per line: as plain text, whatever it begins with, or, where the file's name ends with .jsonl,
/// .ndjson or .json, an object with a string "prompt" (or "text"). Empty lines are passed over. ConfigError:
/// no such file, no text, no prompts, a line that is not such an object (with its number).
std::vector<Prompt> read_prompts(const std::filesystem::path& file);

}  // namespace coeus
