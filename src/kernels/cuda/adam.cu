// SPDX-License-Identifier: Apache-2.0
#include "coeus/kernels/rows/adam.hpp"
#include "coeus/kernels/rows/matrix.hpp"
#include "cuda.hpp"
#include "launch.hpp"
#include "team.hpp"

namespace coeus::cuda {

namespace {

template <class T>
struct AdamOperands {
    T *master, *exp_avg, *exp_avg_sq;
    const Acc<T>* grad;
    int64_t count;
};

/// The numbers of the step are in the device's memory.
template <class T, class C>
__global__ void adam_kernel(AdamOperands<T> t, C* compute, AdamOptions options, const StepScalars* scalars) {
    if (!scalars->finite) return;
    const AdamFactors<Acc<T>> factors = adam_factors<Acc<T>>(options, *scalars);
    const RandomStream random = rounding_stream(options, scalars->step);
    const int64_t run = options.run > 0 ? options.run : t.count;
    adam_row(grid_team(), t.master, t.exp_avg, t.exp_avg_sq, t.grad, compute, t.count, factors,
             [&](int64_t i) {
                 const int64_t row = i / run, col = i % run;
                 return random.u64(options.first_index + uint64_t(row) * options.stride + uint64_t(col));
             });
}

}  // namespace

void Cuda::adam(Exec& exec, const AdamTensors& t, const AdamOptions& options, const StepScalars& scalars) {
    const int64_t count = t.master.count();
    require(t.exp_avg.count() == count && t.exp_avg_sq.count() == count && t.grad.count() == count &&
                (!t.compute || t.compute.count() == count),
            "adam: tensors differ in length");
    require(t.master.dense() && t.exp_avg.dense() && t.exp_avg_sq.dense() && t.grad.dense() &&
                (!t.compute || t.compute.dense()),
            "adam: rows are not adjacent");
    const Grid grid = {blocks_for(std::min<int64_t>(div_ceil(count, 256 * 4), 1 << 16))};
    dispatch(t.master.dtype, [&]<class T>(T) {
        const AdamOperands<T> operands = {t.master.as<T>(), t.exp_avg.as<T>(), t.exp_avg_sq.as<T>(),
                                          t.grad.as<const Acc<T>>(), count};
        const auto update = [&]<class C>(C* compute) {
            launch(exec, "adam", grid, adam_kernel<T, C>, operands, compute, options, &scalars);
        };
        if (t.compute)
            dispatch(t.compute.dtype, [&]<class C>(C) { update(t.compute.as<C>()); });
        else
            update(static_cast<T*>(nullptr));
    });
}

}  // namespace coeus::cuda
