// SPDX-License-Identifier: Apache-2.0
#include "base64.hpp"

#include <cstdint>

namespace coeus {

namespace {

int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> bytes_of_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    std::string_view digits = text;
    while (digits.ends_with('=') && text.size() - digits.size() < 2) digits.remove_suffix(1);
    std::string bytes;
    uint32_t bits = 0;
    int held = 0;  // number of bits that are not a whole byte yet
    for (const char c : digits) {
        const int value = value_of(c);
        if (value < 0) return std::nullopt;
        bits = (bits << 6) | uint32_t(value);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        bytes += char(bits >> held);
        bits &= (1u << held) - 1;
    }
    return bytes;
}

}  // namespace coeus
