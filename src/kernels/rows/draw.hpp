// SPDX-License-Identifier: Apache-2.0
// Initial values, a run of elements at a time. Files that include this are compiled with -ffp-contract=off
// (coeus/base/normal_formulas.hpp).
#pragma once

#include "coeus/base/normal_formulas.hpp"
#include "coeus/base/random.hpp"
#include "team.hpp"

namespace coeus::rows {

/// Uniform values are scale (2 u - 1). Normal ones are scale * the quantile of below + mass u, where u is
/// uniform in (0, 1), and below and mass are the probabilities below the lower bound and between both bounds.
enum class Drawn : uint8_t { uniform, normal };
struct DrawFactors {
    double scale, below, mass;
};
inline DrawFactors draw_factors(const Init& init) {
    if (init.std == 0) return {.scale = init.bound, .below = 0, .mass = 1};
    const double below = init.bound > 0 ? normal_cdf(-init.bound / init.std) : 0;
    return {.scale = init.std, .below = below, .mass = 1 - 2 * below};
}
inline bool is_constant(const Init& init) {
    return init.std == 0 && init.bound == 0;
}

/// Calls f(kind) for an integral constant of the kind of values, which are not constant.
template <class F>
void dispatch_drawn(const Init& init, F&& f) {
    if (init.std == 0) return f(std::integral_constant<Drawn, Drawn::uniform>());
    return f(std::integral_constant<Drawn, Drawn::normal>());
}

template <Drawn drawn>
[[gnu::always_inline]] COEUS_HD inline double drawn_value(uint64_t bits, const DrawFactors& f) {
    const double u = uniform_of(bits);
    if constexpr (drawn == Drawn::uniform)
        return normal::times(f.scale, 2 * u - 1);
    else
        return normal::times(f.scale, normal::quantile(f.below + normal::times(u, f.mass)));
}

/// bits(first) returns a function of j that gives the 64 random bits of element first + j.
template <Drawn drawn, class Team, class T, class Bits>
COEUS_HD void draw_row(const Team& team, T* out, int64_t count, const DrawFactors& factors,
                       const Bits& bits) {
    team.fill(count, out, [=](int64_t first) {
        return [=, random = bits(first)](int64_t j) { return drawn_value<drawn>(random(j), factors); };
    });
}

}  // namespace coeus::rows
