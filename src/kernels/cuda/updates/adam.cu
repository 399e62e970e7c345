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

/// The scalars of the step are in device memory; `constants` lack them. bits: the largest magnitude of the
/// weights, if with_largest.
template <class T, class M, class G, class C, bool with_largest>
__global__ void adam_kernel(AdamOperands<T, M, G> t, C* compute, int32_t* bits, AdamFactors<float> constants,
                            uint64_t seed, size_t group, ElementPlace place, const StepScalars* scalars) {
    if (scalars->refusals != 0) {
        if constexpr (with_largest)
            raise_for_weights(whole_grid<with_largest>(), bits, t.count, t.master, compute);
        return;
    }
    const GroupFactors of_group = scalars->groups[group].factors;
    AdamFactors<float> factors = constants;
    factors.clip = float(scalars->clip);
    factors.keep = of_group.keep;
    factors.step_size = of_group.step_size;
    factors.inverse_root2 = of_group.inverse_root2;
    const RandomStream random = rounding_stream(seed, place, scalars->step);
    update_whole_grid<T, whole_count<T, M, G, C>(), with_largest>(
        random, place, t.count, [&](const auto& team, const auto& of) {
            adam_row(team, t.master, t.exp_avg, t.exp_avg_sq, t.grad, compute, t.count, factors, of);
            if constexpr (with_largest) raise(bits, team.largest_written().first);
        });
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
    const auto by_type = [](Dtype type, const auto& f) { dispatch(type, f); };
    dispatch_moments(t.master.dtype, t.exp_avg.dtype, by_type, [&]<class T, class M>(T, M) {
        const auto update = [&]<bool with_largest, class G, class C>(int32_t* bits, G, C* compute) {
            const AdamOperands<T, M, G> operands = {t.master.as<T>(), t.exp_avg.as<M>(), t.exp_avg_sq.as<M>(),
                                                    t.grad.as<const G>(), count};
            const auto kernel = adam_kernel<T, M, G, C, with_largest>;
            launch(exec, "adam",
                   resident_grid(exec, kernel, div_ceil(count, whole_count<T, M, G, C>()),
                                 bytes_for<with_largest>),
                   kernel, operands, compute, bits, adam_constants<float>(options), options.seed,
                   options.group, place, &scalars);
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
