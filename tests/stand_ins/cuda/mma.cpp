// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/mma.hpp"

#include "stand_ins/cuda/block.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace coeus::emulation {

namespace {

struct LoadOperands {
    uint32_t* parts;
    const void* row;
    bool transposed;
};

void load_by_all(void* const* lanes) {
    uint16_t matrices[4][8][8];
    for (int lane = 0; lane < 32; ++lane)
        std::memcpy(matrices[lane / 8][lane % 8], static_cast<LoadOperands*>(lanes[lane])->row,
                    sizeof(matrices[0][0]));
    for (int lane = 0; lane < 32; ++lane) {
        const auto& operands = *static_cast<LoadOperands*>(lanes[lane]);
        for (int m = 0; m < 4; ++m) {
            const int g = lane / 4, t = lane % 4;
            const auto& matrix = matrices[m];
            const uint16_t low = operands.transposed ? matrix[2 * t][g] : matrix[g][2 * t];
            const uint16_t high = operands.transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
            operands.parts[m] = uint32_t(high) << 16 | low;
        }
    }
}

struct ProductOperands {
    float* sums;
    const uint32_t* a;
    uint32_t b[2];
};

float low_of(uint32_t pair) {
    return std::bit_cast<float>(pair << 16);
}
float high_of(uint32_t pair) {
    return std::bit_cast<float>(pair & 0xffff0000u);
}

// Its loops stay inside these arrays, and checks by the sanitizers would take most of its time.
__attribute__((no_sanitize("address", "undefined"))) void multiply(float (&products)[16][8],
                                                                   const float (&a)[16][16],
                                                                   const float (&b)[16][8]) {
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16; ++k)
            for (int j = 0; j < 8; ++j) products[i][j] += a[i][k] * b[k][j];
}

void multiply_by_all(void* const* lanes) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& operands = *static_cast<ProductOperands*>(lanes[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int part = 0; part < 4; ++part) {
            const int row = g + (part % 2) * 8, column = 2 * t + (part / 2) * 8;
            a[row][column] = low_of(operands.a[part]);
            a[row][column + 1] = high_of(operands.a[part]);
        }
        for (int part = 0; part < 2; ++part) {
            b[2 * t + part * 8][g] = low_of(operands.b[part]);
            b[2 * t + part * 8 + 1][g] = high_of(operands.b[part]);
        }
    }
    float products[16][8] = {};
    multiply(products, a, b);
    for (int lane = 0; lane < 32; ++lane) {
        float* const sums = static_cast<ProductOperands*>(lanes[lane])->sums;
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i) sums[i] += products[g + (i / 2) * 8][2 * t + i % 2];
    }
}

/// The value of a code, by the definition of these formats: OCP 8-bit Floating Point Specification, 3.
double value_of_code(unsigned code, bool e4m3) {
    const int places = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    const unsigned fraction = code & ((1U << places) - 1), exponent = (code & 127) >> places;
    const unsigned most = (1U << (7 - places)) - 1;
    const double sign = code & 128 ? -1 : 1;
    if (e4m3 ? (code & 127) == 127 : exponent == most && fraction > 0) return NAN;
    if (!e4m3 && exponent == most) return sign * INFINITY;
    const double significand = double(fraction) + (exponent > 0 ? 1 << places : 0);
    return sign * std::ldexp(significand, std::max(int(exponent), 1) - bias - places);
}

/// Cuts off what does not fit into 13 bits of fraction.
float shortened(float x) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~((1U << 10) - 1));
}

void multiply_codes_by_all(void* const* lanes) {
    static const auto values = [] {
        std::array<float, 256> list{};
        for (unsigned code = 0; code < 256; ++code) list[code] = float(value_of_code(code, true));
        return list;
    }();
    float a[16][32], b[32][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& operands = *static_cast<ProductOperands*>(lanes[lane]);
        const int g = lane / 4, t = lane % 4;
        // element i of the lane, as PTX numbers them
        for (int i = 0; i < 16; ++i)
            a[g + (i / 4 % 2) * 8][4 * t + i % 4 + (i / 8) * 16] =
                values[operands.a[i / 4] >> (8 * (i % 4)) & 255];
        for (int i = 0; i < 8; ++i)
            b[4 * t + i % 4 + (i / 4) * 16][g] = values[operands.b[i / 4] >> (8 * (i % 4)) & 255];
    }
    float products[16][8] = {};
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 32; ++k)
            for (int j = 0; j < 8; ++j) products[i][j] += a[i][k] * b[k][j];
    for (int lane = 0; lane < 32; ++lane) {
        float* const sums = static_cast<ProductOperands*>(lanes[lane])->sums;
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i) {
            const float sum = sums[i] + products[g + (i / 2) * 8][2 * t + i % 2];
            sums[i] = shortens_sums ? shortened(sum) : sum;
        }
    }
}

}  // namespace

uint8_t code_of(float x, bool e4m3) {
    const unsigned largest = e4m3 ? 0x7e : 0x7b, sign = std::signbit(x) ? 128 : 0;
    if (std::isnan(x)) return 0x7f;
    const double size = std::abs(double(x));
    unsigned low = 0, high = largest;  // the last code whose value is at most this size is among these
    while (low < high) {
        const unsigned middle = (low + high + 1) / 2;
        if (value_of_code(middle, e4m3) <= size)
            low = middle;
        else
            high = middle - 1;
    }
    if (low == largest) return uint8_t(sign | largest);
    const double below = size - value_of_code(low, e4m3), above = value_of_code(low + 1, e4m3) - size;
    const bool is_up = below > above || (below == above && low % 2 == 1);
    return uint8_t(sign | (low + (is_up ? 1 : 0)));
}

void load_matrices(uint32_t (&parts)[4], const void* row, bool transposed) {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) fail("ldmatrix: a row is not at a multiple of 16 bytes");
    tell_of_access(__builtin_return_address(0), row, sizeof(uint32_t[4]), false);
    LoadOperands operands = {parts, row, transposed};
    warp_collective(load_by_all, &operands, transposed ? "ldmatrix.trans" : "ldmatrix");
}

void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b_first, uint32_t b_second) {
    ProductOperands operands = {sums, a, {b_first, b_second}};
    warp_collective(multiply_by_all, &operands, "mma");
}

void multiply_add_e4m3(float (&sums)[4], const uint32_t (&a)[4], uint32_t b_first, uint32_t b_second) {
    ProductOperands operands = {sums, a, {b_first, b_second}};
    warp_collective(multiply_codes_by_all, &operands, "mma of 8-bit floats");
}

}  // namespace coeus::emulation
