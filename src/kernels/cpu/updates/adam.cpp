// SPDX-License-Identifier: Apache-2.0
#include "../../rows/adam.hpp"

#include "../quantization/largest.hpp"
#include "random_bits.hpp"

namespace coeus::cpu {

void Cpu::adam(Exec& exec, const AdamTensors& t, const AdamOptions& options, const ElementPlace& place,
               const StepScalars& scalars) {
    const int64_t count = t.master.count();
    require(t.exp_avg.count() == count && t.exp_avg_sq.count() == count && t.grad.count() == count &&
                (!t.compute || t.compute.count() == count),
            "adam: tensors differ in length");
    require(t.master.dense() && t.exp_avg.dense() && t.exp_avg_sq.dense() && t.grad.dense() &&
                (!t.compute || t.compute.dense()),
            "adam: rows are not adjacent");
    const Tensor weights = t.compute ? t.compute : t.master;
    require(!weights.largest || weights.has_largest(), "adam: the weights have one largest magnitude");
    if (scalars.refusals != 0) return find_largest(exec, weights);
    const RandomStream random = rounding_stream(options.seed, place, scalars.step);
    const auto by_type = [](Dtype type, const auto& f) { dispatch(type, f); };
    dispatch_moments(t.master.dtype, t.exp_avg.dtype, by_type, [&]<class T, class M>(T, M) {
        const auto factors = adam_factors<Acc<T>>(options, scalars);
        const auto update = [&]<class C, class G>(C* compute, G) {
            with_lane(weights, [&](const auto& lane) {
                for_parts_with_bits<std::is_same_v<T, bf16>>(
                    exec, count, place, random, [&](int64_t i, int64_t n, const uint64_t* bits) {
                        adam_row(lane, t.master.as<T>() + i, t.exp_avg.as<M>() + i, t.exp_avg_sq.as<M>() + i,
                                 t.grad.as<const G>() + i, compute ? compute + i : nullptr, n, factors,
                                 [=](int64_t) { return [=](int64_t j) { return bits[j]; }; });
                    });
            });
        };
        dispatch_gradient<T>(t.grad.dtype, weights, [&]<class G>(G gradient) {
            if (t.compute)
                dispatch(t.compute.dtype, [&]<class C>(C) { update(t.compute.as<C>(), gradient); });
            else
                update(static_cast<T*>(nullptr), gradient);
        });
    });
}

}  // namespace coeus::cpu
