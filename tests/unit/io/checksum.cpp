// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/checksum.hpp"

#include "support/catch.hpp"

#include <numeric>

using namespace coeus;

TEST_CASE("checksums: the formula of the file format", "[checksum]") {
    // computed with numpy from the formula in doc/checkpoint.md
    CHECK(checksum_mix(0, 0) == 0x17fb89ee35ed72b0u);
    CHECK(checksum_mix(12345, 0x3f800000) == 0xc068e5621265bd45u);
    const float values[] = {0.f, 1.f, -2.5f};
    CHECK(checksum_of(values, 4, 7, 3) == 0x44cf79065bd9cec2u);
}

TEST_CASE("checksums: parts added in any order give the sums of the whole", "[checksum]") {
    const int64_t rows = 11, cols = 6;
    std::vector<uint16_t> whole(size_t(rows * cols));
    std::iota(whole.begin(), whole.end(), uint16_t(40));
    for (int64_t block_rows : {1, 3, 11, 100}) {
        BlockSums at_once({rows, cols}, block_rows), in_rows({rows, cols}, block_rows),
            in_columns({rows, cols}, block_rows);
        at_once.add(whole.data(), 2, 0, 0, rows, cols);
        for (int64_t r = rows; r-- > 0;) in_rows.add(whole.data() + r * cols, 2, r, 0, 1, cols);
        for (int64_t first : {4, 0}) {
            const int64_t width = first == 4 ? 2 : 4;
            std::vector<uint16_t> part;
            for (int64_t r = 0; r < rows; ++r)
                part.insert(part.end(), whole.begin() + r * cols + first,
                            whole.begin() + r * cols + first + width);
            in_columns.add(part.data(), 2, 0, first, rows, width);
        }
        CHECK(at_once.size() == div_ceil(rows, block_rows));
        CHECK(in_rows.sums() == at_once.sums());
        CHECK(in_columns.sums() == at_once.sums());
    }
}

TEST_CASE("checksums: any flipped bit and any swap changes the sum, of its block only", "[checksum]") {
    std::vector<uint32_t> whole(24);
    std::iota(whole.begin(), whole.end(), 5u);
    BlockSums before({8, 3}, 2);
    before.add(whole.data(), 4, 0, 0, 8, 3);
    for (size_t element = 0; element < whole.size(); ++element)
        for (int bit = 0; bit < 32; ++bit) {
            auto changed = whole;
            changed[element] ^= 1u << bit;
            BlockSums after({8, 3}, 2);
            after.add(changed.data(), 4, 0, 0, 8, 3);
            for (size_t block = 0; block < 4; ++block)
                REQUIRE((before.sums()[block] != after.sums()[block]) == (block == element / 6));
        }
    std::swap(whole[0], whole[1]);
    BlockSums swapped({8, 3}, 2);
    swapped.add(whole.data(), 4, 0, 0, 8, 3);
    CHECK(swapped.sums()[0] != before.sums()[0]);
}

TEST_CASE("checksums: blocks of about a million elements", "[checksum]") {
    CHECK(checksum_block_rows({128256, 4096}) == 256);
    CHECK(checksum_block_rows({5}) == 1 << 20);
    CHECK(checksum_block_rows({2, 1 << 22}) == 1);
    CHECK(checksum_block_rows({3, 0}) == 1 << 20);
}
