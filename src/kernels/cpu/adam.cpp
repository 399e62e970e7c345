// SPDX-License-Identifier: Apache-2.0
#include "../rows/adam.hpp"

#include "cpu.hpp"

namespace coeus::cpu {

namespace {

constexpr int64_t bits_at_a_time = 256;

/// RandomStream::u64 of [first, first + count), count <= bits_at_a_time; both halves of each block of Philox
/// are used.
void fill_bits(uint64_t* out, const RandomStream& random, uint64_t first, int64_t count) {
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

}  // namespace

void Cpu::adam(Exec& exec, const AdamTensors& t, const AdamOptions& options, const ElementPlace& place,
               const StepScalars& scalars) {
    const int64_t count = t.master.count();
    require(t.exp_avg.count() == count && t.exp_avg_sq.count() == count && t.grad.count() == count &&
                (!t.compute || t.compute.count() == count),
            "adam: tensors differ in length");
    require(t.master.dense() && t.exp_avg.dense() && t.exp_avg_sq.dense() && t.grad.dense() &&
                (!t.compute || t.compute.dense()),
            "adam: rows are not adjacent");
    if (scalars.refusals != 0) return;
    const RandomStream random = rounding_stream(options.seed, place, scalars.step);
    dispatch(t.master.dtype, [&]<class T>(T) {
        const auto factors = adam_factors<Acc<T>>(options, scalars);
        const int64_t run = place.run > 0 ? place.run : std::max<int64_t>(1, count);
        const auto update = [&]<class C>(C* compute) {
            parallel_blocks(exec, count, int64_t(1) << 14, [&](int64_t, int64_t first, int64_t last) {
                uint64_t random_bits[bits_at_a_time];
                for (int64_t i = first, n; i < last; i += n) {
                    n = last - i;
                    if (std::is_same_v<T, bf16>) {
                        const int64_t row = i / run, col = i % run;
                        n = std::min({n, bits_at_a_time, run - col});
                        fill_bits(random_bits, random,
                                  place.first_index + uint64_t(row) * place.stride + uint64_t(col), n);
                    }
                    adam_row(Lane(), t.master.as<T>() + i, t.exp_avg.as<T>() + i, t.exp_avg_sq.as<T>() + i,
                             t.grad.as<const Acc<T>>() + i, compute ? compute + i : nullptr, n, factors,
                             [&](int64_t) { return [&](int64_t j) { return random_bits[j]; }; });
                }
            });
        };
        if (t.compute)
            dispatch(t.compute.dtype, [&]<class C>(C) { update(t.compute.as<C>()); });
        else
            update(static_cast<T*>(nullptr));
    });
}

}  // namespace coeus::cpu
