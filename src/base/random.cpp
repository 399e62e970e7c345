// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/random.hpp"

#include "coeus/base/error.hpp"

#include <bit>
#include <cmath>

namespace coeus {

namespace {

template <size_t N>
double polynomial(const double (&c)[N], double x) {
    double y = c[N - 1];
    for (size_t i = N - 1; i-- > 0;) y = y * x + c[i];
    return y;
}

}  // namespace

double normal_quantile(double p) {
    static constexpr double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                   1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                   4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                   3.3430575583588128105e+4, 2.5090809287301226727e+3};
    static constexpr double b[] = {1.0,
                                   4.2313330701600911252e+1,
                                   6.8718700749205790830e+2,
                                   5.3941960214247511077e+3,
                                   2.1213794301586595867e+4,
                                   3.9307895800092710610e+4,
                                   2.8729085735721942674e+4,
                                   5.2264952788528545610e+3};
    static constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                   5.76949722146069140550e0,  3.64784832476320460504e0,
                                   1.27045825245236838258e0,  2.41780725177450611770e-1,
                                   2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static constexpr double d[] = {1.0,
                                   2.05319162663775882187e0,
                                   1.67638483018380384940e0,
                                   6.89767334985100004550e-1,
                                   1.48103976427480074590e-1,
                                   1.51986665636164571966e-2,
                                   5.47593808499534494600e-4,
                                   1.05075007164441684324e-9};
    static constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                   1.78482653991729133580e0,  2.96560571828504891230e-1,
                                   2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                   2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static constexpr double f[] = {1.0,
                                   5.99832206555887937690e-1,
                                   1.36929880922735805310e-1,
                                   1.48753612908506148525e-2,
                                   7.86869131145613259100e-4,
                                   1.84631831751005468180e-5,
                                   1.42151175831644588870e-7,
                                   2.04426310338993978564e-15};
    const double q = p - 0.5;
    if (std::fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * polynomial(a, r) / polynomial(b, r);
    }
    double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
    r = r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
               : polynomial(e, r - 5) / polynomial(f, r - 5);
    return q < 0 ? -r : r;
}

double normal_cdf(double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t stream)
    : n_(n), key_{uint32_t(seed), uint32_t(seed >> 32)}, high_{uint32_t(stream), uint32_t(stream >> 32)} {
    require(n > 0, "a permutation needs at least one element");
    const int bits = n <= 2 ? 2 : std::bit_width(n - 1);
    half_bits_ = uint32_t((bits + 1) / 2);
}

uint64_t Permutation::encrypt(uint64_t value) const {
    const uint64_t mask = (uint64_t(1) << half_bits_) - 1;
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint32_t round = 0; round < 6; ++round) {
        const Philox4 f = philox({uint32_t(right), round, high_[0], high_[1]}, key_);
        const uint64_t next = left ^ (f[0] & mask);
        left = right;
        right = next;
    }
    return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
    require(index < n_, "permutation index out of range");
    // values outside [0, n) are encrypted again until they fall inside: fewer than four times on average
    do index = encrypt(index);
    while (index >= n_);
    return index;
}

}  // namespace coeus
