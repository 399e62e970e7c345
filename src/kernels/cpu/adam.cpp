// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/rows/adam.hpp"

#include "cpu.hpp"

namespace coeus::cpu {

void Cpu::adam(Exec& exec, const AdamTensors& t, const AdamOptions& options, const StepScalars& scalars) {
    const int64_t count = t.master.count();
    require(t.exp_avg.count() == count && t.exp_avg_sq.count() == count && t.grad.count() == count &&
                (!t.compute || t.compute.count() == count),
            "adam: tensors differ in length");
    require(t.master.dense() && t.exp_avg.dense() && t.exp_avg_sq.dense() && t.grad.dense() &&
                (!t.compute || t.compute.dense()),
            "adam: rows are not adjacent");
    if (!scalars.finite) return;
    const RandomStream random = rounding_stream(options, scalars.step);
    dispatch(t.master.dtype, [&]<class T>(T) {
        const auto factors = adam_factors<Acc<T>>(options, scalars);
        const auto run = [&]<class C>(C* compute) {
            parallel_blocks(exec, count, int64_t(1) << 14, [&](int64_t, int64_t first, int64_t last) {
                adam_row(Lane(), t.master.as<T>() + first, t.exp_avg.as<T>() + first,
                         t.exp_avg_sq.as<T>() + first, t.grad.as<const Acc<T>>() + first,
                         compute ? compute + first : nullptr, last - first, factors, random,
                         options.first_index + uint64_t(first));
            });
        };
        if (t.compute)
            dispatch(t.compute.dtype, [&]<class C>(C) { run(t.compute.as<C>()); });
        else
            run(static_cast<T*>(nullptr));
    });
}

}  // namespace coeus::cpu
