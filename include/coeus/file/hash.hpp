// SPDX-License-Identifier: Apache-2.0
// Content hashes of bytes: XXH3 with 64 bits, for caches and to identify the tokenizer that made a file. Not
// cryptographic.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace coeus {

/// Hash of bytes that are added in pieces. How they are divided does not change the hash.
class Hasher {
public:
    Hasher();
    ~Hasher();
    Hasher(Hasher&&) noexcept;
    Hasher& operator=(Hasher&&) noexcept;

    Hasher& update(std::string_view bytes);
    Hasher& update(std::span<const std::byte> bytes);
    /// The hash of all bytes so far; more may follow.
    uint64_t digest() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

uint64_t hash_of(std::string_view bytes);
/// Sixteen hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace coeus
