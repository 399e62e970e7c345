// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/hash.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;

TEST_CASE("XXH3 gives its published values", "[hash]") {
    // XXH3_64bits of an empty input, from the sanity checks of xxHash (seed 0)
    CHECK(hash_text(hash_of("")) == "2d06800538d394c2");
    CHECK(hash_text(hash_of("a")) == "e6c632b61e964e1f");
    CHECK(hash_text(hash_of("abc")) == "78af5f94892f3950");
}

TEST_CASE("the division into pieces does not change a hash", "[hash]") {
    std::string bytes(100000, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = char(i * i >> 3);
    for (size_t piece : {1, 7, 240, 4096, 99999}) {
        Hasher hasher;
        for (size_t at = 0; at < bytes.size(); at += piece)
            hasher.update(std::string_view(bytes).substr(at, piece));
        CHECK(hasher.digest() == hash_of(bytes));
    }
}
