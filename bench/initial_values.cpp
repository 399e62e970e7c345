// SPDX-License-Identifier: Apache-2.0
// The time of drawing initial values on one core, compared with the way of version 0.2: a Philox
// block for each element, the C library's logarithm and erfc, and a division for its row and column:
//     build/bench/bench_initial_values [MILLIONS of elements, default 20]
// Both ways draw truncated normal values in float32, a million at a time and in turns. Times are those of the
// processor, not of the clock on the wall, so that other programs disturb them little. The figures are
// medians of all turns, for 100 million elements. It also counts the elements in which the two ways differ.
#include "coeus/base/random.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/kernels/kernels.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <vector>

using namespace coeus;

namespace {

constexpr int64_t cols = 4096, rows = 256, part = rows * cols;

double cpu_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

template <size_t N>
double polynomial(const double (&c)[N], double x) {
    double y = c[N - 1];
    for (size_t i = N - 1; i-- > 0;) y = y * x + c[i];
    return y;
}

// AS 241, with the C library's logarithm, and products and sums fused as the compiler likes.
double old_quantile(double p) {
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
    const double q = p - 0.5;
    if (std::fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * polynomial(a, r) / polynomial(b, r);
    }
    // values cut off at 3 deviations do not reach the third pair of polynomials
    const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
    const double x = polynomial(c, r - 1.6) / polynomial(d, r - 1.6);
    return q < 0 ? -x : x;
}

[[gnu::noinline]] double old_value(const Init& init, const RandomStream& stream, uint64_t index) {
    double u = stream.uniform(index);
    const double below = normal_cdf(-init.bound / init.std);
    u = below + u * (1 - 2 * below);
    return init.std * old_quantile(u);
}

void draw_old(Tensor out, const Init& init, uint64_t seed, const ElementPlace& place) {
    const RandomStream stream(seed, place.stream);
    const auto first_row = int64_t(place.first_index) / cols;
    for (int64_t i = 0; i < out.count(); ++i) {
        const int64_t row = first_row + i / out.cols(), col = i % out.cols();
        set_element(out, i, old_value(init, stream, uint64_t(row * cols + col)));
    }
}

double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    const int64_t millions = argc > 1 ? std::atoll(argv[1]) : 20;
    const Init init = Init::truncated_normal(0.02, 0.06);
    const OwnedTensor old_values(Dtype::f32, {rows, cols}), new_values(Dtype::f32, {rows, cols});
    Exec exec;
    std::vector<double> old_seconds, new_seconds;
    int64_t differing = 0, count = 0, largest = 0;
    for (; count < millions * 1000000; count += part) {
        const ElementPlace place = {.stream = stream_of("output.weight"), .first_index = uint64_t(count)};
        const double begin = cpu_seconds();
        draw_old(old_values, init, 1, place);
        const double middle = cpu_seconds();
        cpu_kernels().draw(exec, new_values, init, 1, place);
        const double end = cpu_seconds();
        old_seconds.push_back((middle - begin) * 1e8 / double(part));
        new_seconds.push_back((end - middle) * 1e8 / double(part));
        for (int64_t i = 0; i < part; ++i) {
            const auto was = std::bit_cast<int32_t>(old_values.view.as<float>()[i]);
            const auto is = std::bit_cast<int32_t>(new_values.view.as<float>()[i]);
            differing += was != is;
            largest = std::max<int64_t>(largest, std::abs(int64_t(was) - is));
        }
    }
    fmt::print("100 million truncated normal values in float32, one core, median of {} turns:\n",
               old_seconds.size());
    fmt::print("    before {:.2f} s, now {:.2f} s, {:.1f} times as fast\n", median(old_seconds),
               median(new_seconds), median(old_seconds) / median(new_seconds));
    fmt::print("    {} of {} elements differ, by at most {} units in the last place\n", differing, count,
               largest);
}
