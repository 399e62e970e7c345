// SPDX-License-Identifier: Apache-2.0
// Content hashes: XXH3, 64 bits, of bytes and files; for caches and for saying which tokenizer made a file.
// Not cryptographic.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace coeus {

/// Hash of bytes that come in pieces; the pieces' borders do not matter.
class Hasher {
public:
    Hasher();
    ~Hasher();
    Hasher(Hasher&&) noexcept;
    Hasher& operator=(Hasher&&) noexcept;

    Hasher& update(std::string_view bytes);
    Hasher& update(std::span<const std::byte> bytes);
    /// Of all bytes so far; more may follow.
    uint64_t digest() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

uint64_t hash_of(std::string_view bytes);
/// Sixteen hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace coeus
