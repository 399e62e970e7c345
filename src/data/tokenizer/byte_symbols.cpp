// SPDX-License-Identifier: Apache-2.0
#include "byte_symbols.hpp"

#include <algorithm>
#include <array>

namespace coeus {

namespace {

struct Table {
    std::array<uint16_t, 256> code_point;
    std::array<std::string, 256> symbol;
    std::array<int16_t, 0x144> byte;  // by code point; -1: not a symbol
    std::array<uint8_t, 256> by_rank;

    Table() {
        byte.fill(-1);
        uint16_t next = 0x100;
        for (int b = 0; b < 256; ++b) {
            const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
            const uint16_t c = printable ? uint16_t(b) : next++;
            code_point[size_t(b)] = c;
            byte[c] = int16_t(b);
            symbol[size_t(b)] = c < 0x80 ? std::string(1, char(c))
                                         : std::string{char(0xc0 | (c >> 6)), char(0x80 | (c & 0x3f))};
            by_rank[size_t(b)] = uint8_t(b);
        }
        std::sort(by_rank.begin(), by_rank.end(),
                  [&](uint8_t a, uint8_t b) { return code_point[a] < code_point[b]; });
    }
};

const Table& table() {
    static const Table all;
    return all;
}

}  // namespace

const std::string& symbol_of_byte(uint8_t byte) {
    return table().symbol[byte];
}

uint8_t byte_of_rank(int rank) {
    return table().by_rank[size_t(rank)];
}

std::string symbols_of_bytes(std::string_view bytes) {
    std::string symbols;
    for (char byte : bytes) symbols += symbol_of_byte(uint8_t(byte));
    return symbols;
}

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
    std::string bytes;
    for (size_t i = 0; i < symbols.size(); ++i) {
        uint32_t c = uint8_t(symbols[i]);
        if (c >= 0x80) {  // all of these have two bytes
            if ((c & 0xe0) != 0xc0 || i + 1 == symbols.size()) return std::nullopt;
            c = ((c & 0x1f) << 6) | (uint8_t(symbols[++i]) & 0x3f);
        }
        if (c >= table().byte.size() || table().byte[c] < 0) return std::nullopt;
        bytes += char(table().byte[c]);
    }
    return bytes;
}

}  // namespace coeus
