// SPDX-License-Identifier: Apache-2.0
// Philox against the vectors that its authors publish (Random123, kat_vectors), the normal quantile against
// tables (values by mpmath with 30 digits), permutations as bijections.
#include "coeus/base/random.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

using namespace coeus;
using test::close;
using test::relatively_close;

TEST_CASE("Philox4x32-10 gives the published vectors") {
    CHECK(philox({0, 0, 0, 0}, {0, 0}) == Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr uint32_t ones = 0xffffffff;
    CHECK(philox({ones, ones, ones, ones}, {ones, ones}) ==
          Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a stream's name is hashed by 64-bit FNV-1a") {
    CHECK(stream_of("") == 0xcbf29ce484222325u);
    CHECK(stream_of("a") == 0xaf63dc4c8601ec8cu);
    CHECK(stream_of("foobar") == 0x85944171f73967e8u);
}

TEST_CASE("elements of a stream depend only on seed, stream and index") {
    const RandomStream stream(1234, "tok_embeddings.weight");
    CHECK(stream.u64(7) == RandomStream(1234, "tok_embeddings.weight").u64(7));
    CHECK(stream.u64(7) != RandomStream(1235, "tok_embeddings.weight").u64(7));
    CHECK(stream.u64(7) != RandomStream(1234, "output.weight").u64(7));
    CHECK(RandomStream(uint64_t(1) << 32, 0).u64(0) != RandomStream(0, 0).u64(0));
    CHECK(RandomStream(0, uint64_t(1) << 32).u64(0) != RandomStream(0, 0).u64(0));
    CHECK(stream.u64(uint64_t(1) << 40) != stream.u64(0));
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1001; ++i) seen.insert(stream.u64(i));
    CHECK(seen.size() == 1001);
    // two elements share a block, low word first
    const Philox4 block = stream.bits(3);
    CHECK(stream.u64(6) == ((uint64_t(block[1]) << 32) | block[0]));
    CHECK(stream.u64(7) == ((uint64_t(block[3]) << 32) | block[2]));
}

TEST_CASE("uniform values lie inside (0, 1) with the right mean and variance") {
    const RandomStream stream(5, "uniform");
    constexpr int n = 100000;
    double sum = 0, squares = 0, low = 1, high = 0;
    for (uint64_t i = 0; i < n; ++i) {
        const double u = stream.uniform(i);
        sum += u;
        squares += u * u;
        low = std::min(low, u);
        high = std::max(high, u);
    }
    CHECK(low > 0);
    CHECK(high < 1);
    CHECK(close(sum / n, 0.5, 0.005));
    CHECK(close(squares / n, 1.0 / 3, 0.005));
}

TEST_CASE("the least and the greatest uniform values are inside (0, 1)") {
    CHECK(uniform_of(0) == 0x1p-54);
    CHECK(uniform_of(uint64_t(1) << 11) == 3 * 0x1p-54);
    CHECK(uniform_of(~uint64_t(0)) == 1 - 0x1p-53);
    CHECK(uniform_of(uint64_t(1) << 63) == 0.5);
}

TEST_CASE("the normal quantile agrees with a Newton step in extended precision, from 2^-54 to 1 - 2^-53") {
    const RandomStream random(6, "quantile");
    const auto check = [](double p) {
        // erf near the middle and erfc in the tails keep the relative precision
        const double x = normal_quantile(p);
        const long double root = std::sqrt(2.0L), q = static_cast<long double>(p) - 0.5L;
        const long double wrong = std::fabs(q) < 0.25L ? std::erf(x / root) / 2 - q
                                  : q < 0 ? std::erfc(-x / root) / 2 - static_cast<long double>(p)
                                          : (1 - static_cast<long double>(p)) - std::erfc(x / root) / 2;
        const long double density = std::exp(-static_cast<long double>(x) * x / 2) / 2.50662827463100050242L;
        return double(std::fabs(wrong / density)) <= 1e-15 * std::fabs(x);
    };
    int wrong = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
        const double u = random.uniform(i);
        for (const double p : {u, std::exp(-37 * u), 1 - std::exp(-36 * u)}) wrong += !check(p);
    }
    for (const double p : {0x1p-54, 0x1p-53, 1 - 0x1p-53, 0.075, 0.925, 0.5 + 0x1p-30}) wrong += !check(p);
    CHECK(wrong == 0);
}

TEST_CASE("the normal quantile agrees with tables in all three branches") {
    CHECK(normal_quantile(0.5) == 0);
    CHECK(relatively_close(normal_quantile(0.75), 0.674489750196081743202, 1e-15));
    CHECK(relatively_close(normal_quantile(0.9), 1.28155156554460046696, 1e-15));
    CHECK(relatively_close(normal_quantile(0.95), 1.64485362695147271486, 1e-15));
    CHECK(relatively_close(normal_quantile(0.975), 1.95996398454005423552, 1e-15));
    CHECK(relatively_close(normal_quantile(0.001), -3.09023230616781354152, 1e-15));
    CHECK(relatively_close(normal_quantile(1e-10), -6.36134090240406049939, 1e-15));
    CHECK(relatively_close(normal_quantile(1e-20), -9.26234008979840737402, 1e-15));
    CHECK(relatively_close(normal_quantile(1e-300), -37.0470962993611992, 1e-14));
}

TEST_CASE("quantile and distribution invert each other, and the quantile is odd") {
    for (double p : {1e-12, 1e-4, 0.074, 0.075, 0.076, 0.3, 0.5, 0.7, 0.924, 0.926, 0.9999}) {
        INFO("p = " << p);
        CHECK(relatively_close(normal_cdf(normal_quantile(p)), p, 1e-13));
    }
    for (double p : {0.5 - 0x1p-20, 0.25, 0.0625}) CHECK(normal_quantile(p) == -normal_quantile(1 - p));
    CHECK(relatively_close(normal_cdf(1), 0.841344746068542948585, 1e-15));
}

TEST_CASE("a permutation is a bijection, of any length") {
    for (uint64_t n : {1, 2, 3, 5, 7, 64, 65, 100, 1000}) {
        const Permutation permutation(n, 42, stream_of("shuffle"));
        std::set<uint64_t> images;
        for (uint64_t i = 0; i < n; ++i) images.insert(permutation(i));
        INFO("n = " << n);
        CHECK(images.size() == n);
        CHECK(*images.rbegin() == n - 1);
    }
}

TEST_CASE("a permutation mixes, and changes with seed and stream") {
    const Permutation one(1000, 1, 0), other_seed(1000, 2, 0), other_stream(1000, 1, 1);
    int fixed = 0, rising = 0, same_seed = 0, same_stream = 0;
    for (uint64_t i = 0; i < 1000; ++i) {
        fixed += one(i) == i;
        rising += i > 0 && one(i) > one(i - 1);
        same_seed += one(i) == other_seed(i);
        same_stream += one(i) == other_stream(i);
    }
    CHECK(fixed < 10);
    CHECK(rising > 400);
    CHECK(rising < 600);
    CHECK(same_seed < 10);
    CHECK(same_stream < 10);
}

TEST_CASE("a permutation refuses lengths that it cannot handle") {
    CHECK_THROWS_WITH(Permutation(0, 1, 1), Catch::Contains("at least one element"));
    const Permutation three(3, 1, 1);
    CHECK_THROWS_WITH(three(3), Catch::Contains("out of range"));
}
