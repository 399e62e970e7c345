// SPDX-License-Identifier: Apache-2.0
#include "text_flaws.hpp"

#include "coeus/base/utf8.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace coeus {

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

// True if the text has a character of several bytes that is not a replacement character.
bool has_wide(std::string_view text) {
    const auto high = [](char c) { return uint8_t(c) >= 0x80; };
    for (auto at = text.begin(); (at = std::find_if(at, text.end(), high)) != text.end();
         at += std::ptrdiff_t(replacement.size()))
        if (!text.substr(size_t(at - text.begin())).starts_with(replacement)) return true;
    return false;
}

// True if the text has a character above U+FFFF as CESU-8 encodes it: two surrogates of UTF-16, each in three
// bytes.
bool has_cesu(std::string_view text) {
    const auto is_surrogate = [&](size_t at, uint8_t least) {
        return text[at] == '\xED' && uint8_t(text[at + 1]) >= least && uint8_t(text[at + 1]) < least + 0x10;
    };
    for (size_t at = text.find('\xED'); at < text.size() && at + 6 <= text.size();
         at = text.find('\xED', at + 1))
        if (is_surrogate(at, 0xA0) && is_surrogate(at + 3, 0xB0)) return true;
    return false;
}

}  // namespace

void TextFlaws::add(std::string_view bytes, std::string_view text, int64_t replaced) {
    const auto nuls = std::count(bytes.begin(), bytes.end(), '\0');
    if (!found()) {
        // bytes and text are identical up to the first flaw
        const size_t sound = replaced > 0 ? valid_utf8_prefix(bytes) : bytes.size();
        const size_t first = nuls > 0 ? std::min(sound, bytes.find('\0')) : sound;
        const std::string_view before = bytes.substr(0, first);
        bytes_ += int64_t(first);
        lines_ += std::count(before.begin(), before.end(), '\n');
        wide_before_ = wide_before_ || has_wide(before);
        bytes.remove_prefix(first);
        text.remove_prefix(first);
        utf16_mark_ = bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF");
    }
    behind_ += int64_t(bytes.size());
    replaced_ += replaced;
    nuls_ += nuls;
    cesu_ = cesu_ || (replaced > 0 && has_cesu(bytes));
    wide_behind_ = wide_behind_ || (found() && has_wide(text));
}

// In UTF-16, every second byte of ASCII characters is NUL.
bool TextFlaws::looks_utf16() const {
    return nuls_ * 4 >= behind_ || (utf16_mark_ && nuls_ > 0);
}

std::string TextFlaws::place() const {
    if (!found()) return "";
    std::string text = fmt::format(", first at line {}, byte {}", lines_ + 1, bytes_ + 1);
    const std::string from_there = fmt::format("convert that part with tail -c +{} | iconv", bytes_ + 1);
    if (looks_utf16() && utf16_mark_)
        text += fmt::format("; from there on it looks like UTF-16: {} -f UTF-16 -t UTF-8", from_there);
    else if (looks_utf16())
        text += "; UTF-16 without a byte order mark seems to begin near there (iconv -f UTF-16LE -t UTF-8)";
    else if (cesu_)
        text +=
            "; it looks like CESU-8, which Java and old MySQL write: convert it with python3 -c \"import "
            "sys; text = "
            "sys.stdin.buffer.read().decode('utf-8', 'surrogatepass').encode('utf-16', 'surrogatepass'); "
            "sys.stdout.buffer.write(text.decode('utf-16', 'replace').encode())\" < FILE > NEW";
    else if (replaced_ > 0 && !wide_behind_ && wide_before_)
        text += fmt::format(
            "; it is UTF-8 up to there and looks like Latin-1 or Windows-1252 from there on: {} -f "
            "WINDOWS-1252 -t UTF-8",
            from_there);
    else if (replaced_ > 0 && !wide_behind_)
        text += "; it looks like Latin-1 or Windows-1252: convert it with iconv -f WINDOWS-1252 -t UTF-8";
    return text;
}

}  // namespace coeus
