// SPDX-License-Identifier: Apache-2.0
// Chooses how a matrix product is computed, by measurements (bench/kernels.cpp). grouped_gemm.cpp has those
// of experts.
// - oneDNN, if the CPU has AVX-512 (for bf16: AVX-512 BF16)
// - our own packed product elsewhere. In f32 it reaches OpenBLAS's rate (oneDNN's is lower for a large
//   depth); it computes bf16, for which such CPUs have no instructions, at the same rate.
// - OpenBLAS for f64
// - for the few rows of generated tokens, where only memory traffic counts, a product that reads b once
#include "../cpu.hpp"
#include "../workspace.hpp"
#include "onednn_gemm.hpp"
#include "openblas_gemm.hpp"
#include "packed_gemm.hpp"
#include "thin_gemm.hpp"

namespace coeus::cpu {

namespace {

// oneDNN 2.6 loses a fifth of its f32 rate if a large depth is summed over rows of b (the gradient of the
// head, whose depth is the vocabulary). Such a product is computed in slabs of its depth.
constexpr int64_t deep = 8192, slab = 2048;

bool onednn_in_slabs(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth) {
    if (depth < deep || d.dtype != Dtype::f32 || a.is_transposed || b.is_transposed)
        return onednn_gemm(exec, d, a, b, c, depth);
    for (int64_t first = 0; first < depth; first += slab) {
        const int64_t n = std::min(slab, depth - first);
        if (!onednn_gemm(exec, d, a.tensor.slice_cols(first, n), b.tensor.slice_rows(first, n),
                         first > 0 ? d : c, n)) {
            require(first == 0, "oneDNN has a kernel for only some slabs of a product");
            return false;
        }
    }
    return true;
}

}  // namespace

void Cpu::gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c) {
    const int64_t rows = a.is_transposed ? a.tensor.cols() : a.tensor.rows();
    const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    const int64_t cols = b.is_transposed ? b.tensor.rows() : b.tensor.cols();
    require(depth == (b.is_transposed ? b.tensor.cols() : b.tensor.rows()) && d.rows() == rows &&
                d.cols() == cols && (!c || (c.rows() == rows && c.cols() == cols)),
            "gemm: shapes do not fit");
    require(a.tensor.dtype == b.tensor.dtype && (!c || c.dtype == d.dtype), "gemm: types do not fit");
    if (rows == 0 || cols == 0) return;
    if (depth == 0) return c ? cast(exec, d, c) : zero(exec, d);
    const Dtype type = a.tensor.dtype;
    if (workspace::is_thin(d, a, b)) return thin_gemm(exec, d, a.tensor, b.tensor, c);
    if (type == Dtype::f64) return openblas_gemm(exec, d, a, b, c, depth);
    if (onednn_is_fast(type) && onednn_in_slabs(exec, d, a, b, c, depth)) return;
    packed_gemm(exec, d, a, b, c, depth);
}

}  // namespace coeus::cpu
