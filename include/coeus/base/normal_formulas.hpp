// SPDX-License-Identifier: Apache-2.0
// The quantile of the normal distribution with the same bits on every processor: sums, products, quotients
// and roots that are rounded one by one, in a fixed order. A file that includes this must be compiled with
// -ffp-contract=off, or the compiler would fuse products with sums. Everything is inlined, so that no other
// file can bring in a function that was compiled in another way. normal_quantile() in random.hpp is for all
// others.
#pragma once

#include "coeus/base/host_device.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

namespace coeus::normal {

/// a b, which nvcc does not fuse with a sum.
[[gnu::always_inline]] COEUS_HD inline double times(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

/// c0 + c1 x + c2 x^2 + ..., by Horner's scheme.
[[gnu::always_inline]] COEUS_HD inline double polynomial(double, double c) {
    return c;
}
template <class... Rest>
[[gnu::always_inline]] COEUS_HD inline double polynomial(double x, double c, Rest... rest) {
    return times(polynomial(x, rest...), x) + c;
}

/// The double of an integer below 2^52, which vectorizes on every processor.
[[gnu::always_inline]] COEUS_HD inline double double_of(uint64_t x) {
    return std::bit_cast<double>(x | 0x4330000000000000u) - 0x1p52;
}

/// The natural logarithm of a normal number x > 0, within 1 unit in the last place. With x = 2^k (1 + f) and
/// 1 + f between sqrt(1/2) and sqrt(2): log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), s = f / (2 + f), with
/// fdlibm's polynomial R (Sun Microsystems 1993, e_log.c).
[[gnu::always_inline]] COEUS_HD inline double log_of(double x) {
    constexpr uint64_t one = 0x3ff0000000000000u, root_of_half = 0x3fe6a09e00000000u;
    const uint64_t shifted = std::bit_cast<uint64_t>(x) + (one - root_of_half);
    const double k = double_of(shifted >> 52) - 1023;
    const double f = std::bit_cast<double>((shifted & 0x000fffffffffffffu) + root_of_half) - 1;
    const double s = f / (2 + f), z = times(s, s);
    const double half = times(times(0.5, f), f);
    const double r =
        times(polynomial(z, 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                         2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                         1.479819860511658591e-01),
              z);
    constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    return (((times(s, half + r) + times(k, ln2_low)) - half) + f) + times(k, ln2_high);
}

/// The quantile of 0.5 + q, for |q| <= centre (Wichura, Algorithm AS 241, Applied Statistics 37, 1988,
/// PPND16).
inline constexpr double centre = 0.425;
[[gnu::always_inline]] COEUS_HD inline double quantile_in_centre(double q) {
    const double r = 0.180625 - times(q, q);
    const double numerator =
        polynomial(r, 3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
                   1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                   3.3430575583588128105e+4, 2.5090809287301226727e+3);
    const double denominator =
        polynomial(r, 1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
                   2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
                   5.2264952788528545610e+3);
    return times(q, numerator) / denominator;
}

/// The quantile of 1 - p, for p < 0.5 - centre.
[[gnu::always_inline]] COEUS_HD inline double quantile_in_tail(double p) {
    const double r = std::sqrt(-log_of(p));
    const double near = r - 1.6, far = r - 5;
    if (r <= 5)
        return polynomial(near, 1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                          3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                          2.27238449892691845833e-2, 7.74545014278341407640e-4) /
               polynomial(near, 1.0, 2.05319162663775882187e0, 1.67638483018380384940e0,
                          6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
                          5.47593808499534494600e-4, 1.05075007164441684324e-9);
    return polynomial(far, 6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                      2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                      2.71155556874348757815e-5, 2.01033439929228813265e-7) /
           polynomial(far, 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
                      1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
                      1.42151175831644588870e-7, 2.04426310338993978564e-15);
}

/// The quantile of p in (0, 1).
[[gnu::always_inline]] COEUS_HD inline double quantile(double p) {
    const double q = p - 0.5;
    if (std::fabs(q) <= centre) return quantile_in_centre(q);
    const double r = quantile_in_tail(q < 0 ? p : 1 - p);
    return q < 0 ? -r : r;
}

}  // namespace coeus::normal
