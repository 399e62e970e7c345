// SPDX-License-Identifier: Apache-2.0
// Unicode: classes of characters, from the program's own table, and normal forms, from utf8proc, whose header
// is included only in characters.cpp. The normal form of a character never changes once it is assigned.
#pragma once

#include "unicode_table.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

/// Classes of characters, as bits: \p{L}; \p{N}; White_Space; \r and \n; letters and marks that are not lower
/// case ([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]); letters and marks that are not upper case
/// ([\p{Ll}\p{Lm}\p{Lo}\p{M}]).
enum : uint8_t { is_letter = 1, is_number = 2, is_space = 4, is_line_end = 8, is_upper = 16, is_lower = 32 };
uint8_t class_of(uint32_t code);
/// The classes of the characters below `classes_in_table`; almost all assigned characters are among them.
const uint8_t* character_classes();
inline constexpr uint32_t classes_in_table = 0x34000;
Category category_of(uint32_t code);
/// True for a character of words: Alphabetic, marks, digits and connectors.
bool is_word(uint32_t code);

/// The position where the white space at the end of the text begins, and where that at its start ends.
size_t space_at_end(std::string_view text);
size_t space_at_start(std::string_view text);

/// True if the text ends, or starts, with a character of a word: is_word, and joiners (\w in Unicode
/// Technical Standard 18).
bool ends_in_word(std::string_view text);
bool starts_in_word(std::string_view text);
/// True if the text starts with a mark, such as an accent.
bool starts_in_mark(std::string_view text);

/// The version of Unicode of utf8proc, from which normal forms and lower case come: "14.0.0".
std::string unicode_version_of_utf8proc();

/// The functions below return the text itself if nothing changes, else a view of `buffer`. The text must be
/// valid UTF-8 and not be in `buffer`.
enum class NormalForm : uint8_t { c, d, kc, kd };
std::string_view in_normal_form(std::string_view text, NormalForm form, std::string& buffer);
std::string_view in_lower_case(std::string_view text, std::string& buffer);
std::string_view without_marks(std::string_view text, std::string& buffer);

}  // namespace coeus
