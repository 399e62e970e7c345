// SPDX-License-Identifier: Apache-2.0
// UTF-8 as table 3-7 of the Unicode standard defines it: no overlong forms, no surrogates, at most U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

/// Length in bytes of the longest valid prefix; a sequence that the end of the text cuts off is not part of
/// it.
size_t valid_utf8_prefix(std::string_view text);

/// True if the text ends in a sequence that further bytes could complete.
bool incomplete_utf8(std::string_view text);

/// The text with each maximal invalid part replaced by U+FFFD, as the standard recommends (section 3.9) and
/// Python and Rust do. Adds the number of replacements to `replaced`.
std::string repaired_utf8(std::string_view text, int64_t& replaced);

/// Appends a character. `character`: a code point that is not a surrogate.
void append_utf8(std::string& text, char32_t character);

}  // namespace coeus
