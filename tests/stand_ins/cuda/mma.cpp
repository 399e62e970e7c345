// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/mma.hpp"

#include "stand_ins/cuda/block.hpp"

#include <bit>

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

}  // namespace

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

}  // namespace coeus::emulation
