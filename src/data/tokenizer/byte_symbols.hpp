// SPDX-License-Identifier: Apache-2.0
// The 256 characters that represent bytes in byte-level vocabularies (Radford et al., GPT-2, encoder.py,
// bytes_to_unicode). Printable Latin-1 bytes are represented by themselves, the other 68 bytes by U+0100 to
// U+0143, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coeus {

/// The character that represents a byte, in UTF-8.
const std::string& symbol_of_byte(uint8_t byte);

/// The byte at position `rank` among the symbols sorted by code point: '!' is 0. In trained vocabularies,
/// these positions are the ids of the byte symbols.
uint8_t byte_of_rank(int rank);

/// Converts bytes to symbols, and back. Nothing if a character is not a byte symbol.
std::string symbols_of_bytes(std::string_view bytes);
std::optional<std::string> bytes_of_symbols(std::string_view symbols);

}  // namespace coeus
