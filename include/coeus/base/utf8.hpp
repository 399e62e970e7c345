// SPDX-License-Identifier: Apache-2.0
// UTF-8 as the Unicode standard's table 3-7 defines it: no overlong forms, no surrogates, at most U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

/// Bytes of the longest valid prefix; a sequence cut off by the end of the text is not part of it.
size_t valid_utf8_prefix(std::string_view text);

/// True where the text's end cuts a sequence that further bytes could complete.
bool incomplete_utf8(std::string_view text);

/// The text with each maximal invalid part replaced by U+FFFD, as the standard recommends (section 3.9) and
/// Python and Rust do; adds their number to `replaced`.
std::string repaired_utf8(std::string_view text, int64_t& replaced);

}  // namespace coeus
