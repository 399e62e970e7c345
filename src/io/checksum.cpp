// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/checksum.hpp"

#include <algorithm>
#include <cstring>

namespace coeus {

namespace {

template <class Bits>
uint64_t sum_of_run(const void* elements, int64_t first_index, int64_t count) {
    const auto* in = static_cast<const std::byte*>(elements);
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        Bits bits;
        std::memcpy(&bits, in + i * int64_t(sizeof bits), sizeof bits);
        sum += checksum_mix(uint64_t(first_index + i), bits);
    }
    return sum;
}

}  // namespace

uint64_t checksum_of(const void* elements, int64_t element_bytes, int64_t first_index, int64_t count) {
    switch (element_bytes) {
        case 1: return sum_of_run<uint8_t>(elements, first_index, count);
        case 2: return sum_of_run<uint16_t>(elements, first_index, count);
        case 4: return sum_of_run<uint32_t>(elements, first_index, count);
        case 8: return sum_of_run<uint64_t>(elements, first_index, count);
        default: require(false, "elements of 1, 2, 4 or 8 bytes"); return 0;
    }
}

int64_t checksum_block_rows(const Shape& shape) {
    return std::max(int64_t(1), (int64_t(1) << 20) / std::max(int64_t(1), shape.cols()));
}

BlockSums::BlockSums(const Shape& shape, int64_t block_rows)
    : cols_(shape.cols()), block_rows_(block_rows), sums_(size_t(div_ceil(shape.rows(), block_rows)), 0) {}

void BlockSums::add(const void* elements, int64_t element_bytes, int64_t first_row, int64_t first_col,
                    int64_t rows, int64_t cols) {
    const auto* next = static_cast<const std::byte*>(elements);
    for (int64_t row = first_row; row < first_row + rows;) {
        const int64_t block = row / block_rows_;
        // whole rows are added together up to the end of the block, parts of rows one by one
        const int64_t last = std::min(first_row + rows, (block + 1) * block_rows_);
        const int64_t run_rows = cols == cols_ ? last - row : 1;
        sums_[size_t(block)] += checksum_of(next, element_bytes, row * cols_ + first_col, run_rows * cols);
        next += run_rows * cols * element_bytes;
        row += run_rows;
    }
}

std::vector<uint64_t> sum_over_ranks(const std::vector<uint64_t>& parts, const Communicator& comm) {
    // sums of 32-bit halves in 64-bit numbers cannot overflow
    std::vector<int64_t> halves;
    for (uint64_t part : parts) {
        halves.push_back(int64_t(part & 0xffffffffu));
        halves.push_back(int64_t(part >> 32));
    }
    comm.all_reduce(Tensor(halves.data(), Dtype::i64, {int64_t(halves.size())}));
    std::vector<uint64_t> sums;
    for (size_t i = 0; i < halves.size(); i += 2)
        sums.push_back(uint64_t(halves[i]) + (uint64_t(halves[i + 1]) << 32));
    return sums;
}

}  // namespace coeus
