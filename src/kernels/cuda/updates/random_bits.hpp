// SPDX-License-Identifier: Apache-2.0
// Random bits of elements of a parameter, for initial values and stochastic rounding.
#pragma once

#include "../cuda.hpp"
#include "coeus/base/random.hpp"

namespace coeus::cuda {

/// The random bits of the elements from `first` on. One division, of 32 bits if possible, finds the place of
/// element `first` in the parameter, unless it is in the first run. Two elements share a draw, which is kept
/// from one to the next.
class BitsFrom {
public:
    __device__ BitsFrom(const RandomStream& random, const ElementPlace& place, int64_t run, int64_t first)
        : random_(random), run_(run), stride_(place.stride) {
        int64_t row = 0;
        if (first >= run)
            row = first <= int64_t(UINT32_MAX) ? int64_t(uint32_t(first) / uint32_t(run)) : first / run;
        begin_ = place.first_index + uint64_t(row) * stride_;
        column_ = first - row * run;
    }

    /// For small j: element first + j may be a few runs further on.
    __device__ uint64_t operator()(int64_t j) const {
        uint64_t begin = begin_;
        int64_t column = column_ + j;
        for (; column >= run_; column -= run_) begin += stride_;
        const uint64_t index = begin + uint64_t(column);
        if (const uint64_t block = index / 2; block != block_) {
            const Philox4 b = random_.bits(block);
            block_ = block;
            even_ = uint64_t(b[1]) << 32 | b[0];
            odd_ = uint64_t(b[3]) << 32 | b[2];
        }
        return index % 2 == 0 ? even_ : odd_;
    }

private:
    const RandomStream& random_;
    int64_t run_, column_;
    uint64_t stride_, begin_;  ///< of runs in the parameter
    // the last draw (RandomStream::u64); no element has this block
    mutable uint64_t block_ = UINT64_MAX, even_ = 0, odd_ = 0;
};

}  // namespace coeus::cuda
