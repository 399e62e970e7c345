// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/hash.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/raw_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace coeus {

struct Hasher::State {
    XXH3_state_t* xxh = XXH3_createState();
    State() { require(xxh && XXH3_64bits_reset(xxh) == XXH_OK, "no memory for a hash"); }
    ~State() { XXH3_freeState(xxh); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

Hasher& Hasher::update(std::string_view bytes) {
    XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
    return *this;
}

Hasher& Hasher::update(std::span<const std::byte> bytes) {
    XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
    return *this;
}

uint64_t Hasher::digest() const {
    return XXH3_64bits_digest(state_->xxh);
}

uint64_t hash_of(std::string_view bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

std::string hash_text(uint64_t hash) {
    return fmt::format("{:016x}", hash);
}

}  // namespace coeus
