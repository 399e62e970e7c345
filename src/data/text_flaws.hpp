// SPDX-License-Identifier: Apache-2.0
// What of a text is not UTF-8: how much, where it begins, and what it looks like instead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

class TextFlaws {
public:
    /// Bytes at the beginning that are no text: a byte order mark.
    void skip(size_t bytes) { bytes_ += int64_t(bytes); }
    /// The next bytes, which end at the end of a character, and what they became.
    void add(std::string_view bytes, std::string_view text, int64_t replaced);

    /// Parts that became U+FFFD.
    int64_t replaced() const { return replaced_; }
    /// NUL bytes: UTF-8 to the letter, and signs of another encoding.
    int64_t nuls() const { return nuls_; }

    /// ", first at line 3, byte 57 (...)" with what it looks like and how to convert it; "" where there are
    /// none. Lines and bytes count from 1, the latter as `tail -c +57` does.
    std::string place() const;

private:
    bool found() const { return replaced_ + nuls_ > 0; }
    bool looks_utf16() const;

    int64_t bytes_ = 0, lines_ = 0;  // before the first flaw, or in all
    int64_t behind_ = 0;             // bytes from the first flaw on
    int64_t replaced_ = 0, nuls_ = 0;
    bool utf16_mark_ = false;                         // the first flaw is a byte order mark
    bool wide_before_ = false, wide_behind_ = false;  // characters of several bytes that are right
};

}  // namespace coeus
