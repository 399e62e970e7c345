// SPDX-License-Identifier: Apache-2.0
// Checksums of arrays that do not depend on which rank holds which part:
//   sum over the elements of a block of rows of mix(global element index, bits of the element)  mod 2^64
// Ranks add the sums of their parts. So any mesh can write and verify a file while each rank touches only its
// own bytes, and two layouts or replicas of the same weights can be compared by their sums.
#pragma once

#include "coeus/base/types.hpp"
#include "coeus/comm/communicator.hpp"

#include <cstdint>
#include <vector>

namespace coeus {

/// `bits`: the stored bytes of the element as a little-endian number; `index`: its position in the flattened
/// global array. For each index it is a permutation of the 64-bit numbers, so every change of a single
/// element is detected.
constexpr uint64_t checksum_mix(uint64_t index, uint64_t bits) {
    uint64_t x = bits + (index + 1) * 0x9E3779B97F4A7C15u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 29;
    return x;
}

/// Sum of checksum_mix over `count` adjacent elements of 1, 2, 4 or 8 bytes; the first has the index
/// `first_index`.
uint64_t checksum_of(const void* elements, int64_t element_bytes, int64_t first_index, int64_t count);

/// Rows per block: as many as have 2^20 elements, at least one.
int64_t checksum_block_rows(const Shape& shape);

/// The sums of all blocks of one array. Parts are added in any order.
class BlockSums {
public:
    BlockSums(const Shape& shape, int64_t block_rows);

    int64_t block_rows() const { return block_rows_; }
    int64_t size() const { return int64_t(sums_.size()); }
    const std::vector<uint64_t>& sums() const { return sums_; }

    /// Adds a dense part [rows, cols] of the array, whose first element is at (first_row, first_col).
    void add(const void* elements, int64_t element_bytes, int64_t first_row, int64_t first_col, int64_t rows,
             int64_t cols);

private:
    int64_t cols_, block_rows_;
    std::vector<uint64_t> sums_;
};

/// Sums over the ranks, mod 2^64. Collective.
std::vector<uint64_t> sum_over_ranks(const std::vector<uint64_t>& parts, const Communicator& comm);

}  // namespace coeus
