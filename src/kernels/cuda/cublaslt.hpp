// SPDX-License-Identifier: Apache-2.0
// A matrix product as cuBLASLt knows it. Our matrices are stored by rows, its by columns: d = op(a) op(b) + c
// is asked for as d^T = op(b)^T op(a)^T + c^T, in which no element moves. Sums are in float32 to their end:
// algorithms that add parts of a sum in the order in which blocks come to it, or in the type of the result,
// are left out, so that equal calls give equal bits.
#pragma once

#include "algorithm_cache.hpp"
#include "coeus/kernels/kernels.hpp"

#include <cublasLt.h>
#include <string>
#include <vector>

namespace coeus::cuda {

/// Throws SystemError naming the call, where it failed.
void check_cublas(cublasStatus_t status, const char* call);
#define COEUS_CHECK_CUBLAS(call) ::coeus::cuda::check_cublas(call, #call)

/// Owns a description of cuBLASLt.
template <class T, cublasStatus_t (*destroy)(T)>
class CublasOwned {
public:
    CublasOwned() = default;
    CublasOwned(const CublasOwned&) = delete;
    CublasOwned& operator=(const CublasOwned&) = delete;
    ~CublasOwned() {
        if (handle_) destroy(handle_);
    }
    T* out() { return &handle_; }
    operator T() const { return handle_; }

private:
    T handle_ = nullptr;
};
using CublasHandle = CublasOwned<cublasLtHandle_t, cublasLtDestroy>;

/// d = op(a) op(b) + c and the memory that the library may use; c is d where nothing is added.
struct ProductOperands {
    Tensor d, a, b, c, workspace;
    bool adds;
};

/// All that decides which algorithm is best.
struct ProductShape {
    int64_t m, n, k;
    int64_t ld_a, ld_b, ld_c, ld_d;
    uint32_t alignment_a, alignment_b, alignment_c, alignment_d;  ///< of the first elements, in bytes
    bool transpose_a, transpose_b, adds, in_place;                ///< in place: c is d
    Dtype type, out;
    auto operator<=>(const ProductShape&) const = default;

    /// "bfloat16-float32-4096x512x4096-nt-add-..."
    std::string text() const;
};
ProductShape shape_of(const ProductOperands& operands, bool transpose_a, bool transpose_b);

class Product {
public:
    /// SystemError where the library does not know such a product.
    explicit Product(const ProductShape& shape);

    /// Algorithms that need no more than the planned workspace, the one first that the library expects to be
    /// fastest. SystemError where there is none.
    std::vector<Algorithm> suggestions(cublasLtHandle_t handle) const;
    /// It can do this product in the planned workspace.
    bool takes(cublasLtHandle_t handle, const Algorithm& algorithm) const;
    cublasStatus_t run(cublasLtHandle_t handle, const Algorithm& algorithm, const ProductOperands& operands,
                       cudaStream_t stream) const;

private:
    using Operation = CublasOwned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
    using Layout = CublasOwned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
    using Preference = CublasOwned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

    static void make_layout(Layout& layout, Dtype type, int64_t rows, int64_t cols, int64_t ld);

    std::string name_;
    Operation operation_;
    Layout first_, second_, addend_, result_;  // its first operand is our b
    Preference preference_;
};

}  // namespace coeus::cuda
