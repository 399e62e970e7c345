// SPDX-License-Identifier: Apache-2.0
// Random bits of elements of a parameter, for initial values and stochastic rounding.
#pragma once

#include "../cpu.hpp"
#include "coeus/base/random.hpp"

namespace coeus::cpu {

constexpr int64_t bits_at_a_time = 256;

/// Writes RandomStream::u64 of the indices [first, first + count), count <= bits_at_a_time. Uses both halves
/// of each Philox block.
inline void fill_bits(uint64_t* out, const RandomStream& random, uint64_t first, int64_t count) {
    int64_t done = 0;
    if (first % 2 != 0) out[done++] = random.u64(first);
    const uint64_t block = (first + uint64_t(done)) / 2;
    const int64_t pairs = (count - done) / 2;
    uint64_t* rest = out + done;
#pragma omp simd
    for (int64_t i = 0; i < pairs; ++i) {
        const Philox4 b = random.bits(block + uint64_t(i));
        rest[2 * i] = (uint64_t(b[1]) << 32) | b[0];
        rest[2 * i + 1] = (uint64_t(b[3]) << 32) | b[2];
    }
    done += 2 * pairs;
    if (done < count) out[done] = random.u64(first + uint64_t(done));
}

/// Calls f(first, n, bits) for parts [first, first + n) of `count` elements; the threads share the parts.
/// bits[j] belong to element first + j; they are drawn only if `draws`.
template <bool draws, class F>
void for_parts_with_bits(const Exec& exec, int64_t count, const ElementPlace& place,
                         const RandomStream& random, F&& f) {
    const int64_t run = place.run > 0 ? place.run : std::max<int64_t>(1, count);
    parallel_blocks(exec, count, int64_t(1) << 14, [&](int64_t, int64_t first, int64_t last) {
        uint64_t random_bits[bits_at_a_time];
        uint64_t row_begin = place.first_index + uint64_t(first / run) * place.stride;
        int64_t col = first % run;
        for (int64_t i = first, n; i < last; i += n) {
            n = draws ? std::min(last - i, bits_at_a_time) : last - i;
            for (int64_t done = 0, some; draws && done < n; done += some) {
                some = std::min(n - done, run - col);
                fill_bits(random_bits + done, random, row_begin + uint64_t(col), some);
                col += some;
                if (col < run) continue;
                col = 0;
                row_begin += place.stride;
            }
            f(i, n, random_bits);
        }
    });
}

}  // namespace coeus::cpu
