// SPDX-License-Identifier: Apache-2.0
// Unicode: classes of characters and normal form C. Uses utf8proc, whose header is included only in
// characters.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

/// Classes of characters, as bits: \p{L}; \p{N}; White_Space; \r and \n; letters and marks that are not lower
/// case ([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]); letters and marks that are not upper case
/// ([\p{Ll}\p{Lm}\p{Lo}\p{M}]).
enum : uint8_t { is_letter = 1, is_number = 2, is_space = 4, is_line_end = 8, is_upper = 16, is_lower = 32 };
uint8_t class_of(uint32_t code);
/// The classes of U+0000 ... U+FFFF, 65536 bytes.
const uint8_t* character_classes();

/// The position where the white space at the end of the text begins, and where that at its start ends.
size_t space_at_end(std::string_view text);
size_t space_at_start(std::string_view text);

/// True if the text ends, or starts, with a character of a word: letters, marks, digits, connectors (\w in
/// Unicode Technical Standard 18).
bool ends_in_word(std::string_view text);
bool starts_in_word(std::string_view text);

/// The text in normal form C: the text itself if nothing changes, else a view of `buffer`. The text must be
/// valid UTF-8.
std::string_view in_nfc(std::string_view text, std::string& buffer);

}  // namespace coeus
