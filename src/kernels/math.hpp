// SPDX-License-Identifier: Apache-2.0
// The formulas of the kernels on scalars, written once for all backends. Acc<T> is the type in which elements
// of type T are computed: double for double, float for float and bf16. Nothing here needs -ffast-math, which
// would break the checks for NaN: exp is a polynomial that the compiler can vectorize.
#pragma once

#include "coeus/base/host_device.hpp"
#include "coeus/base/types.hpp"
#include "coeus/kernels/kernels.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace coeus::rows {

template <class T>
using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Conversion of elements to and from the type of computation.
COEUS_HD inline double load(double x) {
    return x;
}
COEUS_HD inline float load(float x) {
    return x;
}
COEUS_HD inline float load(bf16 x) {
    return float(x);
}
COEUS_HD inline uint8_t load(uint8_t code) {
    return code;
}
template <class T, class A>
COEUS_HD T store(A x) {
    if constexpr (std::is_same_v<T, bf16>)
        return bf16(float(x));
    else
        return T(x);
}

/// (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2 (Taylor series of exp to degree 13).
template <class F>
COEUS_HD inline F exp_series(F r) {
    F p = r * (1.0 / 6227020800) + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    return p * r + 0.5;
}

/// exp(x) for float and double, and for GCC vectors F of them, where I is the vector of unsigned integers of
/// the same width. With x = n ln 2 + r and |r| <= ln(2)/2, exp(r) is a polynomial (float: that of Cephes
/// expf). The relative error is below 2 units in the last place. The result is 0 below the smallest normal
/// number, saturates instead of overflowing, and keeps NaN.
template <class Scalar, class F, class I>
COEUS_HD inline F exp_polynomial(F x) {
    constexpr bool is_double = std::is_same_v<Scalar, double>;
    constexpr Scalar low = is_double ? Scalar(-708.0) : Scalar(-87.3);
    constexpr Scalar high = is_double ? Scalar(709.0) : Scalar(88.3762626647949);
    // adding 1.5 * 2^(mantissa bits) rounds to an integer, which is then in the lowest bits
    constexpr Scalar magic = is_double ? Scalar(0x1.8p52) : Scalar(0x1.8p23);
    constexpr Scalar ln2_high = is_double ? Scalar(6.93145751953125E-1) : Scalar(0.693359375);
    constexpr Scalar ln2_low = is_double ? Scalar(1.42860682030941723212E-6) : Scalar(-2.12194440e-4);
    constexpr int mantissa = is_double ? 52 : 23, bias = is_double ? 1023 : 127;

    const F zero{};
    F y = low > x ? zero + low : x;  // this order keeps NaN, and compiles to one instruction
    y = high < y ? zero + high : y;
    const F t = y * Scalar(1.44269504088896341) + magic;
    const F n = t - magic;
    const F r = (y - n * ln2_high) - n * ln2_low;
    F p;
    if constexpr (is_double) {
        p = exp_series(r);
    } else {
        // in pairs, which depend less on one another than the steps of Horner's scheme
        const F first = r * Scalar(1.9875691500E-4) + Scalar(1.3981999507E-3);
        const F second = r * Scalar(8.3334519073E-3) + Scalar(4.1665795894E-2);
        const F third = r * Scalar(1.6666665459E-1) + Scalar(5.0000001201E-1);
        p = (first * (r * r) + second) * (r * r) + third;
    }
    p = p * (r * r) + (r + Scalar(1));
    const I power = (std::bit_cast<I>(t) + bias) << mantissa;
    p = p * std::bit_cast<F>(power);
    return x < low ? zero : p;
}

/// 2^x for x <= 0, for attention, whose scores can be in powers of 2 as well: cheaper than exp (float: the
/// polynomial of Cephes exp2f). The result is 0 below 2^-126.5 (double: 2^-1022.5). If hidden keys got
/// 2^-126, products with them would be denormal, which cost some processors over a hundred cycles each.
template <class Scalar, class F, class I>
COEUS_HD inline F exp2_polynomial(F x) {
    constexpr bool is_double = std::is_same_v<Scalar, double>;
    constexpr Scalar low = is_double ? Scalar(-1023.0) : Scalar(-127.0);  // there the exponent bits are 0
    constexpr Scalar magic = is_double ? Scalar(0x1.8p52) : Scalar(0x1.8p23);
    constexpr int mantissa = is_double ? 52 : 23, bias = is_double ? 1023 : 127;
    const F zero{};
    const F y = low > x ? zero + low : x;
    const F t = y + magic;
    F r = y - (t - magic), p;
    if constexpr (is_double) {
        r = r * 0.69314718055994530942;
        p = exp_series(r) * (r * r) + (r + 1.0);
    } else {
        const F first = r * Scalar(1.535336188319500E-4) + Scalar(1.339887440266574E-3);
        const F second = r * Scalar(9.618437357674640E-3) + Scalar(5.550332471162809E-2);
        const F third = r * Scalar(2.402264791363012E-1) + Scalar(6.931472028550421E-1);
        p = ((first * (r * r) + second) * (r * r) + third) * r + Scalar(1);
    }
    const I power = (std::bit_cast<I>(t) + bias) << mantissa;
    return p * std::bit_cast<F>(power);
}

COEUS_HD inline float exp_of(float x) {
    return exp_polynomial<float, float, uint32_t>(x);
}
COEUS_HD inline double exp_of(double x) {
    return exp_polynomial<double, double, uint64_t>(x);
}

/// 2^x, on GPUs within 2 units in the last place and 0 below 2^-126.
COEUS_HD inline float power_of_2(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return std::exp2(x);
#endif
}

/// exp(x) and 1 / (1 + exp(-x)) for elements of type T. For those of bf16 GPUs have an instruction for the
/// power and one for the reciprocal. Their errors, 2 units in the last place of float and |x| / 2 more, are
/// far below the rounding to bf16.
template <class T>
COEUS_HD Acc<T> exp_for(Acc<T> x) {
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<T, bf16>) return power_of_2(x * 1.44269504088896341F);
#endif
    return exp_of(x);
}
template <class T>
COEUS_HD Acc<T> sigmoid(Acc<T> x) {
    const Acc<T> below = Acc<T>(1) + exp_for<T>(-x);
#ifdef __CUDA_ARCH__
    if constexpr (std::is_same_v<T, bf16>) {
        float inverse;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(below));
        return inverse;
    }
#endif
    return Acc<T>(1) / below;
}

/// The exponent q of an activation g sigmoid(q(g)) (Activation), and q'(g). The derivative of the activation
/// is s (1 + g q'(g) (1 - s)) with s = sigmoid(q(g)). Both of GELU are exact up to |g| = 20; the sigmoid of
/// larger ones is 0 or 1, and with their squares derivatives would overflow.
template <class A>
COEUS_HD A square_for_gelu(A g) {
    const A square = g * g;
    return square > A(400) ? A(400) : square;  // this order keeps NaN
}
inline constexpr double gelu_factor = 1.5957691216057307117597842397375;  // 2 sqrt(2/pi)
template <Activation activation, class A>
COEUS_HD A exponent_of(A g) {
    if constexpr (activation == Activation::gelu_tanh)
        return g * (A(gelu_factor) + A(gelu_factor * 0.044715) * square_for_gelu(g));
    return g;
}
template <Activation activation, class A>
COEUS_HD A slope_of_exponent(A g) {
    if constexpr (activation == Activation::gelu_tanh)
        return A(gelu_factor) + A(3 * gelu_factor * 0.044715) * square_for_gelu(g);
    return A(1);
}

/// Rotates (a, b) by the angle with this cosine and sine.
template <class A>
COEUS_HD void rotate(A& a, A& b, A cosine, A sine) {
    const A turned = a * cosine - b * sine;
    b = a * sine + b * cosine;
    a = turned;
}

/// Computes grad_norm, refusals and clip from the squared norm of the gradient and the loss on this rank.
COEUS_HD inline void finish_norm(StepScalars& s, double max_norm) {
    s.grad_norm = std::sqrt(s.squared_norm);
    const bool accepted = std::isfinite(s.grad_norm) && std::isfinite(s.loss) && s.loss <= s.loss_limit &&
                          s.grad_norm <= s.norm_limit && s.overflow == 0;
    s.refusals = accepted ? 0 : 1;
    const double wanted = max_norm / (s.grad_norm + 1e-6);
    s.clip = max_norm > 0 && wanted < 1 ? wanted : 1.0;
}

/// The factors of one Adam step, in the type of computation.
template <class A>
struct AdamFactors {
    A clip = 1, beta1, beta2, rest1, rest2;   ///< rest1 = 1 - beta1, rest2 = 1 - beta2
    A decay;                                  ///< decay * weight is added to the gradient (Adam)
    A keep = 1;                               ///< multiplies the weight (AdamW): 1 - learning rate * decay
    A step_size = 0, inverse_root2 = 1, eps;  ///< learning rate / correction1, and correction2^-1/2
};
/// Those that do not change from step to step.
template <class A>
AdamFactors<A> adam_constants(const AdamOptions& o) {
    return {.beta1 = A(o.beta1),
            .beta2 = A(o.beta2),
            .rest1 = A(1 - o.beta1),
            .rest2 = A(1 - o.beta2),
            .decay = A(o.decay),
            .eps = A(o.eps)};
}
template <class A>
AdamFactors<A> adam_factors(const AdamOptions& o, const StepScalars& step) {
    const GroupScalars& s = step.groups[o.group];
    AdamFactors<A> factors = adam_constants<A>(o);
    factors.clip = A(step.clip);
    factors.keep = A(s.keep());
    factors.step_size = A(s.step_size());
    factors.inverse_root2 = A(s.inverse_root2());
    return factors;
}

/// a b + c, rounded once if the processor can. A compiler may fuse a product and a sum in one loop and not in
/// another, and a sum of two products in two ways; this fixes the choice.
template <class A>
[[gnu::always_inline]] COEUS_HD inline A multiply_add(A a, A b, A c) {
#if defined(__CUDA_ARCH__) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return std::fma(a, b, c);
#else
    return a * b + c;
#endif
}

/// Updates one element by Adam or AdamW. It is rounded alike in all kernels, which the compiler would not
/// ensure: nvcc fused weight * keep with the sum in some kernels, and in others computed it before the branch
/// of the division.
template <class A>
[[gnu::always_inline]] COEUS_HD inline void adam_update(A& weight, A& exp_avg, A& exp_avg_sq, A grad,
                                                        const AdamFactors<A>& f) {
    const A g = multiply_add(grad, f.clip, weight * f.decay);
    exp_avg = multiply_add(exp_avg, f.beta1, g * f.rest1);
    exp_avg_sq = multiply_add(exp_avg_sq, f.beta2, g * g * f.rest2);
    const A root = multiply_add(std::sqrt(exp_avg_sq), f.inverse_root2, f.eps);
    weight = multiply_add(weight, f.keep, -(f.step_size * exp_avg / root));
}

}  // namespace coeus::rows
