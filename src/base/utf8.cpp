// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/utf8.hpp"

#include <cstring>

namespace coeus {

namespace {

struct Sequence {
    size_t length;  // bytes that form a unit, at least 1
    bool valid;
    bool cut;  // invalid only because the text ends
};

// The sequence at the start of a text, which must not be empty.
Sequence first_sequence(std::string_view text) {
    const auto byte = [&](size_t i) { return uint8_t(text[i]); };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return {1, true, false};
    if (lead < 0xc2 || lead > 0xf4) return {1, false, false};
    const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    // the range of the second byte excludes overlong forms, surrogates and values above U+10FFFF
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < length; ++i) {
        if (i == text.size()) return {i, false, true};
        const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xc0) == 0x80;
        if (!fits) return {i, false, false};
    }
    return {length, true, false};
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        uint64_t eight = 0;
        while (at + 8 <= text.size()) {
            std::memcpy(&eight, text.data() + at, 8);
            if (eight & 0x8080808080808080u) break;
            at += 8;
        }
        if (at == text.size()) break;
        const Sequence sequence = first_sequence(text.substr(at));
        if (!sequence.valid) return at;
        at += sequence.length;
    }
    return at;
}

bool incomplete_utf8(std::string_view text) {
    const std::string_view rest = text.substr(valid_utf8_prefix(text));
    if (rest.empty()) return false;
    const Sequence sequence = first_sequence(rest);
    return sequence.cut && sequence.length == rest.size();
}

std::string repaired_utf8(std::string_view text, int64_t& replaced) {
    std::string out;
    out.reserve(text.size() + 16);
    while (true) {
        const size_t valid = valid_utf8_prefix(text);
        out.append(text.substr(0, valid));
        text.remove_prefix(valid);
        if (text.empty()) return out;
        out.append("\xEF\xBF\xBD");
        ++replaced;
        text.remove_prefix(first_sequence(text).length);
    }
}

void append_utf8(std::string& text, char32_t character) {
    const auto trail = [&](int shift) { text += char(0x80 | (character >> shift & 0x3F)); };
    if (character < 0x80) {
        text += char(character);
    } else if (character < 0x800) {
        text += char(0xC0 | character >> 6);
        trail(0);
    } else if (character < 0x10000) {
        text += char(0xE0 | character >> 12);
        trail(6);
        trail(0);
    } else {
        text += char(0xF0 | character >> 18);
        trail(12);
        trail(6);
        trail(0);
    }
}

}  // namespace coeus
