// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt. Our matrices are stored by rows, cuBLASLt's by columns: d = op(a) op(b) + c is
// passed as d^T = op(b)^T op(a)^T + c^T, which moves no element. Everything is summed in float32. Algorithms
// that add partial sums in the order in which blocks finish, or in the type of the result, are excluded, so
// that equal calls give equal bits.
#pragma once

#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/kernels/kernels.hpp"

#include <cublasLt.h>
#include <string>
#include <vector>

namespace coeus::cuda {

/// Throws SystemError with the name of the call if it failed.
void check_cublas(cublasStatus_t status, const char* call);
#define COEUS_CHECK_CUBLAS(call) ::coeus::cuda::check_cublas(call, #call)

/// Owns a descriptor of cuBLASLt.
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

/// What multiplies the sums of a product. It is in the device's memory, and is read when the product runs.
enum class Scaling : uint8_t {
    none,
    factor,   ///< one number; a second one, 0 or 1, multiplies c
    whole,    ///< a number for each operand; null: 1
    vectors,  ///< a number for each row of op(a), and for each column of op(b)
    blocks,   ///< E8M0 numbers of 32 elements of the depth, in cuBLASLt's layout
};

/// The operands of d = op(a) op(b) + c, and the library's workspace. c is d if nothing is added.
struct ProductOperands {
    Tensor d;
    Operand a, b;
    Tensor c, workspace;
    bool adds;
    Scaling scaling = Scaling::none;
    const void *scale_a = nullptr, *scale_b = nullptr;  ///< factor: scale_a
    bool fast = false;                                  ///< 8-bit floats only
};

/// Everything that decides which algorithm is fastest.
struct ProductShape {
    int64_t m, n, k;
    int64_t ld_a, ld_b, ld_c, ld_d;
    uint32_t alignment_a, alignment_b, alignment_c, alignment_d;  ///< of the first elements, in bytes
    bool transpose_a, transpose_b, adds, in_place;                ///< in_place: c is d
    Dtype type_a, type_b, out;
    Scaling scaling;
    bool fast;
    int sms;    ///< multiprocessors for which algorithms are made; 0: all
    bool tf32;  ///< operands in float32 are rounded to TF32
    auto operator<=>(const ProductShape&) const = default;

    /// "bfloat16-float32-4096x512x4096-nt-add-...", "float8_e4m3,float8_e5m2-bfloat16-...-whole",
    /// "float32-float32-...-tf32-sms116"
    std::string text() const;
};
/// `sms`: as in ProductShape. `allow_tf32`: for operands in float32.
ProductShape shape_of(const ProductOperands& operands, int sms, bool allow_tf32);

/// Computes a product with the algorithm chosen for its shape. multiply_if_possible returns false if the
/// library has no algorithm for it; multiply throws SystemError.
void multiply(Exec& exec, const ProductOperands& operands);
bool multiply_if_possible(Exec& exec, const ProductOperands& operands);

/// The most algorithms that Product::suggestions() returns.
constexpr int most_suggestions = 32;

class Product {
public:
    /// SystemError if the library does not support the product.
    explicit Product(const ProductShape& shape);

    /// Where the scales are; needed before all other calls if there are any.
    void set_scales(const ProductOperands& operands) const;
    /// At most `most` (of most_suggestions) algorithms that need no more than the planned workspace, the one
    /// that the library expects to be fastest first.
    std::vector<Algorithm> suggestions(cublasLtHandle_t handle, int most = 8) const;
    /// True if the algorithm can compute this product in the planned workspace.
    bool takes(cublasLtHandle_t handle, const Algorithm& algorithm) const;
    cublasStatus_t run(cublasLtHandle_t handle, const Algorithm& algorithm, const ProductOperands& operands,
                       cudaStream_t stream) const;

private:
    using Operation = CublasOwned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
    using Layout = CublasOwned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
    using Preference = CublasOwned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

    static void make_layout(Layout& layout, Dtype type, int64_t rows, int64_t cols, int64_t ld);

    Scaling scaling_;
    Operation operation_;
    Layout first_, second_, addend_, result_;  // the library's first operand is our b
    Preference preference_;
};

}  // namespace coeus::cuda
