// SPDX-License-Identifier: Apache-2.0
// Unicode: classes of characters and the normal form C. By utf8proc, which stays in characters.cpp.
#pragma once

#include <string>
#include <string_view>

namespace coeus {

/// Where the White_Space at the text's end begins; where that at its start ends.
size_t space_at_end(std::string_view text);
size_t space_at_start(std::string_view text);

/// True where the text ends, starts with a character of words: letters, marks, digits, connectors (\w of
/// Unicode's technical standard 18).
bool ends_in_word(std::string_view text);
bool starts_in_word(std::string_view text);

/// The text in normal form C: itself where nothing changes, else a view of `buffer`. The text is valid UTF-8.
std::string_view in_nfc(std::string_view text, std::string& buffer);

}  // namespace coeus
