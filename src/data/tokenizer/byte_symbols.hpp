// SPDX-License-Identifier: Apache-2.0
// The 256 characters that stand for bytes in byte-level vocabularies (Radford et al., GPT-2, encoder.py,
// bytes_to_unicode): printable Latin-1 stands for itself, the other 68 bytes for U+0100 ... U+0143 in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coeus {

/// UTF-8 of the character that stands for a byte.
const std::string& symbol_of_byte(uint8_t byte);

/// The byte at position `rank` among the symbols sorted by code point: '!' is 0. Trained vocabularies give
/// the byte symbols these ids.
uint8_t byte_of_rank(int rank);

/// Symbols of bytes, and back; nothing where a character is not a byte symbol.
std::string symbols_of_bytes(std::string_view bytes);
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

}  // namespace coeus
