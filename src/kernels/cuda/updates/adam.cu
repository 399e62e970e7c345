// SPDX-License-Identifier: Apache-2.0
#include "../../rows/adam.hpp"
#include "../../rows/matrix.hpp"
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../quantization/largest.hpp"
#include "../rows/team.hpp"
#include "random_bits.hpp"

namespace coeus::cuda {

namespace {

template <class T, class M, class G>
struct AdamOperands {
    T* master;
    M *exp_avg, *exp_avg_sq;
    const G* grad;
    int64_t count;
};

/// The scalars of the step are in device memory. bits: the largest magnitude of the weights, if with_largest.
template <class T, class M, class G, class C, bool with_largest>
__global__ void adam_kernel(AdamOperands<T, M, G> t, C* compute, int32_t* bits, AdamOptions options,
                            ElementPlace place, const StepScalars* scalars) {
    const auto team = whole_grid<with_largest>();
    if (scalars->refusals != 0) {
        if constexpr (with_largest) raise_for_weights(team, bits, t.count, t.master, compute);
        return;
    }
    const AdamFactors<Acc<T>> factors = adam_factors<Acc<T>>(options, *scalars);
    const RandomStream random = rounding_stream(options.seed, place, scalars->step);
    const int64_t run = place.run > 0 ? place.run : t.count;
    adam_row(team, t.master, t.exp_avg, t.exp_avg_sq, t.grad, compute, t.count, factors,
             [&](int64_t first) { return BitsFrom(random, place, run, first); });
    if constexpr (with_largest) raise(bits, team.largest_written().first);
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
    const Tensor weights = t.compute ? t.compute : t.master;
    require(!weights.largest || weights.has_largest(), "adam: the weights have one largest magnitude");
    const unsigned blocks = blocks_for(std::min<int64_t>(div_ceil(count, 256 * 4), 1 << 16));
    const auto by_type = [](Dtype type, const auto& f) { dispatch(type, f); };
    dispatch_moments(t.master.dtype, t.exp_avg.dtype, by_type, [&]<class T, class M>(T, M) {
        const auto update = [&]<bool with_largest, class G, class C>(int32_t* bits, G, C* compute) {
            const AdamOperands<T, M, G> operands = {t.master.as<T>(), t.exp_avg.as<M>(), t.exp_avg_sq.as<M>(),
                                                    t.grad.as<const G>(), count};
            launch(exec, "adam", {.blocks = blocks, .shared_bytes = bytes_for<with_largest>},
                   adam_kernel<T, M, G, C, with_largest>, operands, compute, bits, options, place, &scalars);
        };
        const auto for_sums = [&]<class C>(C* compute) {
            with_largest_of(weights, [&]<bool with_largest>(int32_t* bits) {
                update.template operator()<with_largest>(bits, Acc<T>(), compute);
            });
        };
        dispatch_gradient<T>(t.grad.dtype, weights, [&]<class G>(G gradient) {
            if constexpr (std::is_same_v<G, bf16>) {
                require(!weights.largest, "adam: gradients in bfloat16 are not for weights in 8 bits");
                update.template operator()<false>(nullptr, gradient,
                                                  t.compute ? t.compute.as<bf16>() : nullptr);
            } else if (t.compute) {
                dispatch(t.compute.dtype, [&]<class C>(C) { for_sums(t.compute.as<C>()); });
            } else {
                for_sums(static_cast<T*>(nullptr));
            }
        });
    });
}

}  // namespace coeus::cuda
