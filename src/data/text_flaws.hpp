// SPDX-License-Identifier: Apache-2.0
// Flaws of a text: invalid UTF-8 and NUL bytes. How many there are, where the first one is, and what the
// likely encoding is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

class TextFlaws {
public:
    /// Skips bytes at the beginning that are not text: a byte order mark.
    void skip(size_t bytes) { bytes_ += int64_t(bytes); }
    /// Adds the next bytes, which end at the end of a character, and the text that they became.
    void add(std::string_view bytes, std::string_view text, int64_t replaced);

    /// Number of invalid parts, which became U+FFFD.
    int64_t replaced() const { return replaced_; }
    /// Number of NUL bytes. They are valid UTF-8, but indicate another encoding.
    int64_t nuls() const { return nuls_; }

    /// ", first at line 3, byte 57 (...)", with the likely encoding and how to convert it; "" without flaws.
    /// Lines and bytes are counted from 1, bytes as in `tail -c +57`.
    std::string place() const;

private:
    bool found() const { return replaced_ + nuls_ > 0; }
    bool looks_utf16() const;

    int64_t bytes_ = 0, lines_ = 0;  // before the first flaw; without flaws, in total
    int64_t behind_ = 0;             // bytes from the first flaw on
    int64_t replaced_ = 0, nuls_ = 0;
    bool utf16_mark_ = false;                         // the first flaw is a byte order mark
    bool cesu_ = false;                               // there are two surrogates, each of three bytes
    bool wide_before_ = false, wide_behind_ = false;  // valid characters of several bytes
};

}  // namespace coeus
