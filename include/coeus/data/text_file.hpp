// SPDX-License-Identifier: Apache-2.0
// A text file that is read as a whole and must be without flaws, and whether it is JSON Lines.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// The text of a file, which may be packed, without a byte order mark. ConfigError, with the place: bytes
/// that are not UTF-8, NUL bytes, another encoding, a binary file.
std::string flawless_text(const std::string& file);

/// Whether a file is called JSON: its name ends with .jsonl, .ndjson or .json, packed or not.
bool has_name_of_json(const std::filesystem::path& file);

/// What the first lines of a text are.
enum class LinesForm {
    text,    ///< not mostly objects of JSON
    known,   ///< mostly objects, and some have one of the fields
    others,  ///< mostly objects, and none has one of the fields
    value    ///< an array of objects, or one object over several lines, with one of the fields
};

/// By the content, as data of training is recognised.
LinesForm lines_form(std::string_view text, const std::vector<std::string>& fields);

}  // namespace coeus
