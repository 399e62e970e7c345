// SPDX-License-Identifier: Apache-2.0
#include "../../rows/momentum.hpp"

#include "../quantization/largest.hpp"
#include "random_bits.hpp"

namespace coeus::cpu {

namespace {

constexpr int64_t block = int64_t(1) << 14;  // enough elements to make another thread worthwhile

}  // namespace

void Cpu::momentum(Exec& exec, Tensor buffer, Tensor direction, const MomentumOptions& options,
                   const StepScalars& scalars) {
    require(buffer.count() == direction.count() && buffer.dense() && direction.dense(),
            "momentum: tensors differ in length, or their rows are not adjacent");
    if (scalars.refusals != 0) return;
    dispatch(buffer.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        A *b = buffer.as<A>(), *d = direction.as<A>();
        parallel_blocks(exec, buffer.count(), block, [&](int64_t, int64_t first, int64_t last) {
            momentum_row(Lane(), b + first, d + first, last - first, options, A(scalars.clip));
        });
    });
}

void Cpu::normalize(Exec& exec, Tensor x, const double* squared_norm, double smallest) {
    require(x.dense(), "normalize: rows are not adjacent");
    dispatch(x.dtype, [&]<class T>(T) {
        parallel_blocks(exec, x.count(), block, [&](int64_t, int64_t first, int64_t last) {
            normalize_row(Lane(), x.as<T>() + first, last - first, *squared_norm, smallest);
        });
    });
}

void Cpu::scaled_sum(Exec& exec, Tensor out, double alpha, Tensor a, double beta, Tensor b) {
    require(out.count() == a.count() && out.count() == b.count() && out.dense() && a.dense() && b.dense(),
            "scaled_sum: tensors differ in length, or their rows are not adjacent");
    dispatch(out.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        parallel_blocks(exec, out.count(), block, [&](int64_t, int64_t first, int64_t last) {
            scaled_sum_row(Lane(), out.as<T>() + first, A(alpha), a.as<const T>() + first, A(beta),
                           b.as<const A>() + first, last - first);
        });
    });
}

void Cpu::descend(Exec& exec, Tensor master, Tensor direction, Tensor compute, const DescentOptions& options,
                  const ElementPlace& place, const StepScalars& scalars) {
    const int64_t count = master.count();
    require(direction.count() == count && (!compute || compute.count() == count),
            "descend: tensors differ in length");
    require(master.dense() && direction.dense() && (!compute || compute.dense()),
            "descend: rows are not adjacent");
    const Tensor weights = compute ? compute : master;
    require(!weights.largest || weights.has_largest(), "descend: the weights have one largest magnitude");
    if (scalars.refusals != 0) return find_largest(exec, weights);
    const RandomStream random = rounding_stream(options.seed, place, scalars.step);
    dispatch(master.dtype, [&]<class T>(T) {
        const auto factors = descent_factors<Acc<T>>(options, scalars);
        const auto* d = direction.as<const Acc<T>>();
        const auto update = [&]<class C>(C* copy) {
            with_lane(weights, [&](const auto& lane) {
                for_parts_with_bits<std::is_same_v<T, bf16>>(
                    exec, count, place, random, [&](int64_t first, int64_t n, const uint64_t* bits) {
                        descent_row(lane, master.as<T>() + first, d + first, copy ? copy + first : nullptr, n,
                                    factors, [=](int64_t) { return [=](int64_t j) { return bits[j]; }; });
                    });
            });
        };
        if (compute)
            dispatch(compute.dtype, [&]<class C>(C) { update(compute.as<C>()); });
        else
            update(static_cast<T*>(nullptr));
    });
}

}  // namespace coeus::cpu
