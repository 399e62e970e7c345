// SPDX-License-Identifier: Apache-2.0
// Prompts from a file.
#pragma once

#include "coeus/data/tokenizer.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace coeus {

struct Prompt {
    std::string text;
    int64_t line;  ///< line of the file, counted from 1
};

/// Reads one prompt per line of a file, which may be packed. If the file's name ends with .jsonl, .ndjson or
/// .json, or if most of the first lines are objects and some have one of these fields, a line is an object
/// with a string "prompt" (or "text"); else it is plain text, whatever its first character. Empty lines are
/// skipped. ConfigError: the file does not exist, is not text, or has no prompts; or a line (its number is
/// named) is not such an object.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);

/// The ids of a prompt, after BOS if the tokenizer puts it before a document. ConfigError, with `name` for
/// the prompt: it is not UTF-8, or there are no ids.
std::vector<int32_t> prompt_ids(const Prompt& prompt, const Tokenizer& tokenizer, const std::string& name);

}  // namespace coeus
