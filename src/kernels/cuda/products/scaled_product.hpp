// SPDX-License-Identifier: Apache-2.0
// How a GPU computes a product of 8-bit floats, as a pure function of the operands and of the GPU. So the
// kernel and the table for planning runs agree on it.
#pragma once

#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/quantization.hpp"

#include <algorithm>
#include <initializer_list>

namespace coeus::cuda {

/// What applies the scales.
enum class ScaledBy : uint8_t {
    decoding,  ///< operands are decoded to bfloat16; a factor of the product has the scales of whole operands
    library,   ///< one scale for each operand
    vectors,   ///< scales of the result's rows and columns
    blocks,    ///< E8M0 scales of 32 elements of the depth
    passes,    ///< kernels before and after the product of the codes scale c and the result
};

struct ScaledProduct {
    ScaledBy by = ScaledBy::decoding;
    bool copies_a = false, copies_b = false;  ///< the library gets a transposed copy
};

inline bool has_blocks(const Tensor& t) {
    return t.groups == ScaleGroups::rows32 || t.groups == ScaleGroups::cols32;
}
inline bool has_one_scale(const Tensor& t) {
    return t.groups == ScaleGroups::one || t.groups == ScaleGroups::none;
}
inline int64_t depth_of(const Operand& a) {
    return a.is_transposed ? a.tensor.rows() : a.tensor.cols();
}
/// True if all sizes, and the distances between rows, are multiples of 16, and addresses of 16 bytes, as
/// cuBLASLt needs them.
inline bool fits_8_bit_products(std::initializer_list<Tensor> operands) {
    return std::all_of(operands.begin(), operands.end(), [](const Tensor& t) {
        return !t || (t.rows() % 16 == 0 && t.cols() % 16 == 0 && t.ld % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(t.data) % 16 == 0);
    });
}

inline ScaledProduct scaled_product(const Exec& exec, const Tensor& d, const Operand& a, const Operand& b,
                                    const Tensor& c) {
    const int gpu = exec.architecture;
    const bool both_e5m2 = a.tensor.dtype == Dtype::fp8_e5m2 && b.tensor.dtype == Dtype::fp8_e5m2;
    if (gpu < 89 || exec.emulates_8_bits || both_e5m2 || !fits_8_bit_products({d, a.tensor, b.tensor, c}))
        return {};
    const bool rows_only = multiplies_rows_only(gpu);
    ScaledProduct product = {ScaledBy::passes, rows_only && a.is_transposed, rows_only && !b.is_transposed};
    const bool takes_blocks = gpu >= 100 && depth_of(a) % scale_block == 0;
    if (has_blocks(a.tensor) || has_blocks(b.tensor)) {
        if (!takes_blocks || !has_blocks(a.tensor) || !has_blocks(b.tensor)) return {};
        product.by = ScaledBy::blocks;
    } else if (has_one_scale(a.tensor) && has_one_scale(b.tensor)) {
        product.by = ScaledBy::library;
    } else if (takes_blocks) {  // a power of two is an E8M0 scale as well
        product.by = ScaledBy::blocks;
    } else if (gpu == 90) {
        product.by = ScaledBy::vectors;
    }
    return product;
}

/// True if a product of experts' rows multiplies the codes (grouped_gemm_8_bit.cu); otherwise the operands
/// are decoded to bfloat16. Groups of scales must be along what is not summed.
inline bool multiplies_codes(const Exec& exec, const Tensor& d, std::initializer_list<Tensor> operands) {
    // the kernels store two elements of d at a time
    const bool stores_pairs = d.cols() % 2 == 0 && d.ld % 2 == 0 &&
                              reinterpret_cast<uintptr_t>(d.data) % (2 * size_t(size_of(d.dtype))) == 0;
    return experts_multiply_8_bits(exec.architecture, exec.experts_in_8_bits) && !exec.emulates_8_bits &&
           stores_pairs && std::all_of(operands.begin(), operands.end(), [](const Tensor& t) {
               return t.dtype == Dtype::fp8_e4m3 && !has_blocks(t) && t.cols() % 16 == 0 && t.ld % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
           });
}

/// True if the library cannot take the scales of an operand as a vector where they are.
inline bool needs_vector(const Tensor& t) {
    return has_one_scale(t) || reinterpret_cast<uintptr_t>(t.scale) % 16 != 0;
}
/// cuBLASLt's layout of E8M0 scales: tiles of 128 rows by 4 blocks. Rows are along what is not summed.
struct ScaleTile {
    static constexpr int64_t rows = 128, blocks = 4, bytes = rows * blocks;
};
constexpr int64_t laid_out_scales(int64_t rows, int64_t depth) {
    return ScaleTile::bytes * div_ceil(rows, ScaleTile::rows) *
           div_ceil(div_ceil(depth, scale_block), ScaleTile::blocks);
}

}  // namespace coeus::cuda
