// SPDX-License-Identifier: Apache-2.0
// The emulated tensor cores and copies against the tables of the PTX ISA, element by element.
#include "../../../src/kernels/cuda/ptx/mma.hpp"

#include "coeus/base/small_floats.hpp"
#include "support/catch.hpp"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

using namespace coeus;
using namespace coeus::cuda;

namespace {

void run(unsigned threads, size_t shared_bytes, const std::function<void()>& body) {
    emulation::run_grid(dim3(1), dim3(threads), shared_bytes, body);
}

// Small whole numbers, whose products and sums are exact.
std::vector<float> numbers(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> list(count);
    for (float& x : list) x = float(int(random() % 17) - 8);
    return list;
}

uint32_t pair_at(const std::vector<float>& matrix, int columns, const int (&row)[2], const int (&column)[2]) {
    return pair_of(matrix[size_t(row[0] * columns + column[0])],
                   matrix[size_t(row[1] * columns + column[1])]);
}

}  // namespace

TEST_CASE("mma: products of 16x16 and 16x8 matrices, with elements at the places of PTX") {
    const std::vector<float> a = numbers(16 * 16, 1), b = numbers(16 * 8, 2), c = numbers(16 * 8, 3);
    std::vector<float> result(16 * 8);
    run(32, 0, [&] {
        const int group = int(threadIdx.x) >> 2, in_group = int(threadIdx.x) % 4;
        // element i of A, B, C as numbered in "Matrix fragments for mma.m16n8k16 with floating point type"
        const auto a_row = [&](int i) { return (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8; };
        const auto a_column = [&](int i) {
            return i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
        };
        const auto b_row = [&](int i) { return i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8; };
        const auto c_row = [&](int i) { return i < 2 ? group : group + 8; };
        const auto c_column = [&](int i) { return in_group * 2 + (i & 1); };
        Fragment left;
        for (int i = 0; i < 8; i += 2)
            left.parts[i / 2] = pair_at(a, 16, {a_row(i), a_row(i + 1)}, {a_column(i), a_column(i + 1)});
        const uint32_t first = pair_at(b, 8, {b_row(0), b_row(1)}, {group, group}),
                       second = pair_at(b, 8, {b_row(2), b_row(3)}, {group, group});
        Sums sums;
        for (int i = 0; i < 4; ++i) sums.values[i] = c[size_t(c_row(i) * 8 + c_column(i))];
        multiply_add(sums, left, first, second);
        for (int i = 0; i < 4; ++i) result[size_t(c_row(i) * 8 + c_column(i))] = sums.values[i];
    });
    for (size_t i = 0; i < 16; ++i)
        for (size_t j = 0; j < 8; ++j) {
            float expected = c[i * 8 + j];
            for (size_t k = 0; k < 16; ++k) expected += a[i * 16 + k] * b[k * 8 + j];
            REQUIRE(result[i * 8 + j] == expected);
        }
}

TEST_CASE("mma of 8-bit floats: products of 16x32 and 32x8 matrices, with elements at the places of PTX") {
    // codes of finite numbers
    const auto codes = [](size_t count, unsigned seed) {
        std::mt19937 random(seed);
        std::vector<uint8_t> list(count);
        for (uint8_t& code : list) code = uint8_t(random() % 127 + (random() % 2 ? 128 : 0));
        return list;
    };
    const std::vector<uint8_t> a = codes(16 * 32, 1), b = codes(32 * 8, 2);
    const std::vector<float> c = numbers(16 * 8, 3);
    std::vector<float> result(16 * 8);
    run(32, 0, [&] {
        const int group = int(threadIdx.x) >> 2, in_group = int(threadIdx.x) % 4;
        // element i of A, B, C as numbered in "Matrix fragments for mma.m16n8k32"
        const auto a_row = [&](int i) { return (i >= 0 && i < 4) || (i >= 8 && i < 12) ? group : group + 8; };
        const auto a_column = [&](int i) {
            return i < 8 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16;
        };
        const auto b_row = [&](int i) {
            return i < 4 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16;
        };
        const auto c_row = [&](int i) { return i < 2 ? group : group + 8; };
        const auto c_column = [&](int i) { return in_group * 2 + (i & 1); };
        Fragment left = {};
        uint32_t right[2] = {};
        for (int i = 0; i < 16; ++i)
            left.parts[i / 4] |= uint32_t(a[size_t(a_row(i) * 32 + a_column(i))]) << (8 * (i % 4));
        for (int i = 0; i < 8; ++i)
            right[i / 4] |= uint32_t(b[size_t(b_row(i) * 8 + group)]) << (8 * (i % 4));
        Sums sums;
        for (int i = 0; i < 4; ++i) sums.values[i] = c[size_t(c_row(i) * 8 + c_column(i))];
        multiply_add_e4m3(sums, left, right[0], right[1]);
        for (int i = 0; i < 4; ++i) result[size_t(c_row(i) * 8 + c_column(i))] = sums.values[i];
    });
    for (size_t i = 0; i < 16; ++i)
        for (size_t j = 0; j < 8; ++j) {
            double expected = c[i * 8 + j], size = std::abs(expected);
            for (size_t k = 0; k < 32; ++k) {
                const double product = double(e4m3_value(a[i * 32 + k])) * double(e4m3_value(b[k * 8 + j]));
                expected += product;
                size += std::abs(product);
            }
            REQUIRE(std::abs(result[i * 8 + j] - expected) <= 32 * 0x1p-24 * size);
        }
}

TEST_CASE("mma of 8-bit floats: sums keep 13 bits of their fraction if the GPU shortens them") {
    const auto sum_of = [](float begin) {
        float sum = 0;
        emulation::shortens_sums = true;
        run(32, 0, [&] {
            Sums sums = {{begin, 0, 0, 0}};
            multiply_add_e4m3(sums, {}, 0, 0);
            if (threadIdx.x == 0) sum = sums.values[0];
        });
        emulation::shortens_sums = false;
        return sum;
    };
    CHECK(sum_of(8193) == 8193);
    CHECK(sum_of(8193.5F) == 8193);
    CHECK(sum_of(-16385) == -16384);
}

TEST_CASE("cvt to 8-bit floats gives the codes of encode() for every number, but for the sign of NaN") {
    // What is rounded depends on the upper half of a number, and on whether the lower half is zero. All ties
    // are numbers whose lower half is zero.
    size_t wrong = 0;
    const auto compare = [&](uint32_t bits) {
        const float x = std::bit_cast<float>(bits);
        const uint8_t kept = std::isnan(x) ? 127 : 255;
        wrong += (encode_by_gpu<E4m3>(x) & kept) != (encode<E4m3>(x) & kept);
        wrong += (encode_by_gpu<E5m2>(x) & kept) != (encode<E5m2>(x) & kept);
    };
    for (uint32_t upper = 0; upper < 0x10000; ++upper)
        for (const uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0xffffU}) compare(upper << 16 | lower);
    CHECK(wrong == 0);
    // the instruction saturates infinity too, and rounds ties to even codes
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(encode_by_gpu<E4m3>(-infinity) == 0xfe);
    CHECK(encode_by_gpu<E5m2>(infinity) == 0x7b);
    CHECK(encode_by_gpu<E4m3>(1.0625F) == 0x38);
    CHECK(encode_by_gpu<E4m3>(1.1875F) == 0x3a);
    CHECK(encode_by_gpu<E4m3>(-0x1p-10F) == 0x80);
    CHECK(encode_by_gpu<E4m3>(0x1.8p-9F) == 0x02);
    CHECK(encode_by_gpu<E4m3>(std::numeric_limits<float>::quiet_NaN()) == 0x7f);
}

TEST_CASE("ldmatrix: rows are read from the lanes' addresses, and elements go to the lanes of PTX's table") {
    for (const bool transposed : {false, true}) {
        std::vector<uint32_t> parts(size_t(32 * 4));
        constexpr int pitch = 24;  // distance of rows, in elements
        run(32, 32 * pitch * sizeof(bf16), [&] {
            bf16* const rows = reinterpret_cast<bf16*>(shared_memory());
            const int lane = int(threadIdx.x);
            for (int j = 0; j < 8; ++j) rows[lane * pitch + j].bits = uint16_t(lane * 8 + j);
            __syncwarp();
            const bf16* const row = rows + lane * pitch;
            const Fragment f = transposed ? load_matrices<true>(row) : load_matrices(row);
            for (int m = 0; m < 4; ++m) parts[size_t(lane * 4 + m)] = f.parts[m];
        });
        // "each thread loads a fragment of a row": thread 0 gets elements 0 and 1 of row 0, thread 1 elements
        // 2 and 3, ..., thread 4 elements 0 and 1 of row 1, ...; with .trans of columns
        for (uint32_t lane = 0; lane < 32; ++lane)
            for (uint32_t m = 0; m < 4; ++m)
                for (uint32_t element = 0; element < 2; ++element) {
                    const uint32_t line = lane / 4, place = lane % 4 * 2 + element;
                    const uint32_t row = transposed ? place : line, column = transposed ? line : place;
                    const uint32_t got = parts[lane * 4 + m] >> (16 * element) & 0xffff;
                    REQUIRE(got == (m * 8 + row) * 8 + column);
                }
    }
}

TEST_CASE("tensor cores: an absent lane and misaligned rows are reported") {
    CHECK_THROWS_WITH(run(32, 0,
                          [] {
                              Sums sums = {};
                              if (threadIdx.x != 5) multiply_add(sums, {}, 0, 0);
                          }),
                      Catch::Contains("waits in vain") && Catch::Contains("mma"));
    CHECK_THROWS_WITH(run(32, 32 * 16,
                          [] {
                              const auto* rows = reinterpret_cast<const bf16*>(shared_memory());
                              if (threadIdx.x % 2 == 0)
                                  load_matrices(rows + threadIdx.x * 8);
                              else
                                  load_matrices<true>(rows + threadIdx.x * 8);
                          }),
                      Catch::Contains("waits in vain") && Catch::Contains("ldmatrix"));
    CHECK_THROWS_WITH(
        run(32, 32 * 16, [] { load_matrices(reinterpret_cast<const bf16*>(shared_memory()) + 4); }),
        Catch::Contains("multiple of 16 bytes"));
    CHECK_THROWS_WITH(run(16, 0,
                          [] {
                              Sums sums = {};
                              multiply_add(sums, {}, 0, 0);
                          }),
                      Catch::Contains("without all of its lanes"));
}

TEST_CASE("asynchronous copies arrive when they are waited for, not earlier") {
    alignas(16) const float from[4] = {1, 2, 3, 4};
    float before = 0, after = 0, zero = 1, single = 0;
    run(1, 48, [&] {
        float* const to = reinterpret_cast<float*>(shared_memory());
        to[0] = to[4] = 7;
        copy_async<16>(to, from, false);
        copy_async<16>(to + 4, from, true);
        copy_async<4>(to + 9, from + 2, false);
        before = to[0];
        wait_for_copies();
        after = to[3];
        zero = to[4];
        single = to[9];
    });
    CHECK(std::isnan(before));
    CHECK(after == 4);
    CHECK(zero == 0);
    CHECK(single == 3);
    const auto copy_to = [&](size_t place) {
        run(1, 48, [&] { copy_async<16>(shared_memory() + place, from, false); });
    };
    CHECK_THROWS_WITH(copy_to(16), Catch::Contains("leaves while its copies are under way"));
    CHECK_THROWS_WITH(copy_to(8), Catch::Contains("multiple of its size"));
}
