// SPDX-License-Identifier: Apache-2.0
// Random bits of elements of a parameter, for initial values and stochastic rounding.
#pragma once

#include "../cuda.hpp"
#include "../quantization/largest.hpp"
#include "coeus/base/random.hpp"

namespace coeus::cuda {

/// The row of an element, if rows have `run` elements: by one division, of 32 bits if possible.
__device__ inline int64_t row_of(int64_t element, int64_t run) {
    if (element < run) return 0;
    return element <= int64_t(UINT32_MAX) ? int64_t(uint32_t(element) / uint32_t(run)) : element / run;
}

/// True if the elements of a pack, which begins at a multiple of `size`, are in the same run, and each pair
/// of them shares a draw.
__device__ inline bool packs_have_whole_draws(const ElementPlace& place, int64_t run, int64_t count,
                                              int size) {
    return place.first_index % 2 == 0 && (run >= count || (place.stride % 2 == 0 && run % size == 0));
}

/// The random bits of a pack of elements, in order, under that condition.
class BitsOfPack {
public:
    __device__ BitsOfPack(const RandomStream& random, const ElementPlace& place, int64_t run, int64_t first)
        : random_(random) {
        const int64_t row = row_of(first, run);
        block_ = (place.first_index + uint64_t(row) * place.stride + uint64_t(first - row * run)) / 2;
    }

    /// Element j + 1 must be asked for after j.
    __device__ uint64_t operator()(int64_t j) const {
        if (j % 2 == 0) draw_ = random_.bits(block_ + uint64_t(j / 2));
        return j % 2 == 0 ? uint64_t(draw_[1]) << 32 | draw_[0] : uint64_t(draw_[3]) << 32 | draw_[2];
    }

private:
    const RandomStream& random_;
    uint64_t block_;
    mutable Philox4 draw_ = {};
};

/// The random bits of the elements from `first` on. Two elements share a draw, which is kept from one to the
/// next.
class BitsFrom {
public:
    __device__ BitsFrom(const RandomStream& random, const ElementPlace& place, int64_t run, int64_t first)
        : random_(random), run_(run), stride_(place.stride) {
        const int64_t row = row_of(first, run);
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

/// Calls update(team, bits) with the threads of the whole grid, for elements of type T that are updated
/// `size` at a time if their draws allow it; bits are those of adam_row.
template <class T, int size, bool with_largest, class F>
__device__ void update_whole_grid(const RandomStream& random, const ElementPlace& place, int64_t count,
                                  F&& update) {
    const int64_t run = place.run > 0 ? place.run : count;
    if (!std::is_same_v<T, bf16> || packs_have_whole_draws(place, run, count, size))
        update(whole_grid<with_largest>(), [&](int64_t first, auto together) {
            if constexpr (together > 1)
                return BitsOfPack(random, place, run, first);
            else
                return BitsFrom(random, place, run, first);
        });
    else
        update(whole_grid<with_largest, SingleThreads>(),
               [&](int64_t first, auto) { return BitsFrom(random, place, run, first); });
}

}  // namespace coeus::cuda
