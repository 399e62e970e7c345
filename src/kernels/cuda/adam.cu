// SPDX-License-Identifier: Apache-2.0
#include "../rows/adam.hpp"
#include "../rows/matrix.hpp"
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

/// Random bits of elements from `first` on. A division finds the place of that one in the whole parameter,
/// and of those beyond the end of its run.
class BitsFrom {
public:
    __device__ BitsFrom(const RandomStream& random, const ElementPlace& place, int64_t run, int64_t first)
        : random_(random), place_(place), run_(run), first_(first), row_(first / run), col_(first % run) {}

    __device__ uint64_t operator()(int64_t j) const {
        return col_ + j < run_ ? at(row_, col_ + j) : at((first_ + j) / run_, (first_ + j) % run_);
    }

private:
    __device__ uint64_t at(int64_t row, int64_t col) const {
        return random_.u64(place_.first_index + uint64_t(row) * place_.stride + uint64_t(col));
    }

    const RandomStream& random_;
    const ElementPlace& place_;
    int64_t run_, first_, row_, col_;
};

/// The numbers of the step are in the device's memory.
template <class T, class C>
__global__ void adam_kernel(AdamOperands<T> t, C* compute, AdamOptions options, ElementPlace place,
                            const StepScalars* scalars) {
    if (scalars->refusals != 0) return;
    const AdamFactors<Acc<T>> factors = adam_factors<Acc<T>>(options, *scalars);
    const RandomStream random = rounding_stream(options.seed, place, scalars->step);
    const int64_t run = place.run > 0 ? place.run : t.count;
    adam_row(grid_team(), t.master, t.exp_avg, t.exp_avg_sq, t.grad, compute, t.count, factors,
             [&](int64_t first) { return BitsFrom(random, place, run, first); });
}

}  // namespace

void Cuda::adam(Exec& exec, const AdamTensors& t, const AdamOptions& options, const ElementPlace& place,
                const StepScalars& scalars) {
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
            launch(exec, "adam", grid, adam_kernel<T, C>, operands, compute, options, place, &scalars);
        };
        if (t.compute)
            dispatch(t.compute.dtype, [&]<class C>(C) { update(t.compute.as<C>()); });
        else
            update(static_cast<T*>(nullptr));
    });
}

}  // namespace coeus::cuda
