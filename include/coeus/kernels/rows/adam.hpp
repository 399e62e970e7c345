// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019) over a run of elements. bf16 weights and
// moments are rounded stochastically, with bits that depend on (seed, stream, step, global index) alone.
#pragma once

#include "coeus/base/random.hpp"
#include "coeus/kernels/rows/team.hpp"

namespace coeus {

/// The random numbers of one step of one parameter.
COEUS_HD inline RandomStream rounding_stream(const AdamOptions& options, uint64_t step) {
    return RandomStream(options.seed, options.stream ^ (step * 0x9E3779B97F4A7C15u));
}

/// `compute` may be null. bits(j): 64 random bits of element j, for bf16 alone.
template <class Team, class T, class C, class Bits>
COEUS_HD void adam_row(const Team& team, T* master, T* exp_avg, T* exp_avg_sq, const Acc<T>* grad, C* compute,
                       int64_t count, const AdamFactors<Acc<T>>& factors, const Bits& bits) {
    using A = Acc<T>;
    const auto update = [=](int64_t j) {
        A weight = load(master[j]), first = load(exp_avg[j]), second = load(exp_avg_sq[j]);
        adam_update(weight, first, second, grad[j], factors);
        if constexpr (std::is_same_v<T, bf16>) {
            const uint64_t random = bits(j);
            master[j] = round_stochastically(weight, uint32_t(random));
            exp_avg[j] = round_stochastically(first, uint32_t(random >> 16));
            exp_avg_sq[j] = round_stochastically(second, uint32_t(random >> 32));
        } else {
            master[j] = weight;
            exp_avg[j] = first;
            exp_avg_sq[j] = second;
        }
    };
    if (compute)
        team.each(count, [=](int64_t j) {
            update(j);
            compute[j] = store<C>(load(master[j]));
        });
    else
        team.each(count, update);
}

}  // namespace coeus
