// SPDX-License-Identifier: Apache-2.0
#include "text_size.hpp"

#include <algorithm>

namespace coeus {

namespace {

// The code point at `at` of valid UTF-8, and its length in bytes.
struct Character {
    char32_t code;
    size_t bytes;
};

Character character_at(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const unsigned char first = byte(0);
    const size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    char32_t code = bytes == 1 ? first : first & (0x7fU >> bytes);
    for (size_t i = 1; i < bytes; ++i) code = code << 6 | (byte(i) & 0x3fU);
    return {code, bytes};
}

// Python's str.isspace().
bool is_white(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

}  // namespace

size_t end_without_white_space(std::string_view text) {
    size_t end = 0;
    for (size_t at = 0; at < text.size();) {
        const Character c = character_at(text, at);
        at += c.bytes;
        if (!is_white(c.code)) end = at;
    }
    return end;
}

TextSize size_of_text(std::string_view text) {
    TextSize size = {.characters = 0, .bytes = int64_t(text.size()), .words = 1};
    bool was_white = false;
    for (size_t at = 0; at < text.size();) {
        const Character c = character_at(text, at);
        at += c.bytes;
        ++size.characters;
        const bool white = is_white(c.code);
        size.words += white && !was_white ? 1 : 0;
        was_white = white;
    }
    return size;
}

}  // namespace coeus
