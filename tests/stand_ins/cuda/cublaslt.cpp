// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels compute the products, with the same result for all algorithms.
#include "stand_ins/cuda/cublasLt.h"

#include "coeus/kernels/kernels.hpp"

#include <algorithm>
#include <atomic>

using namespace coeus;

struct coeus_emulated_cublas {};
struct coeus_emulated_product {
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};
struct coeus_emulated_layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
    friend bool operator==(const coeus_emulated_layout&, const coeus_emulated_layout&) = default;
};
struct coeus_emulated_preference {
    uint64_t workspace = 0;
    uint32_t reductions = 7, alignments[4] = {256, 256, 256, 256};
};

namespace {

constexpr uint64_t magic = 0xb1a5;
constexpr uint64_t algorithms = 3, needed_workspace[algorithms] = {4096, 1 << 20, 0};
std::atomic<size_t> given = 0;

template <class T>
T value_of(const void* value, size_t bytes) {
    require(bytes == sizeof(T), "cuBLASLt: an attribute of another size");
    return *static_cast<const T*>(value);
}

Dtype dtype_of_library(cudaDataType_t type) {
    return type == CUDA_R_32F ? Dtype::f32 : Dtype::bf16;
}

/// Our tensor, stored by rows: the transpose of cuBLASLt's matrix, stored by columns.
Tensor tensor_of(const void* data, const coeus_emulated_layout& layout) {
    Tensor t(const_cast<void*>(data), dtype_of_library(layout.type),
             {int64_t(layout.cols), int64_t(layout.rows)});
    t.ld = layout.ld;
    return t;
}

void hash_in(uint64_t& hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
}

uint64_t hash_of_problem(const coeus_emulated_product& product,
                         std::initializer_list<const coeus_emulated_layout*> layouts) {
    uint64_t hash = magic;
    hash_in(hash, uint64_t(product.a) * 2 + uint64_t(product.b));
    for (const coeus_emulated_layout* layout : layouts)
        for (const uint64_t value :
             {uint64_t(layout->type), layout->rows, layout->cols, uint64_t(layout->ld)})
            hash_in(hash, value);
    return hash;
}

bool fits(const coeus_emulated_product& product, const coeus_emulated_layout& a,
          const coeus_emulated_layout& b, const coeus_emulated_layout& c, const coeus_emulated_layout& d) {
    const auto rows = [](const coeus_emulated_layout& m, cublasOperation_t op) {
        return op == CUBLAS_OP_N ? m.rows : m.cols;
    };
    const auto cols = [](const coeus_emulated_layout& m, cublasOperation_t op) {
        return op == CUBLAS_OP_N ? m.cols : m.rows;
    };
    const auto has_room = [](const coeus_emulated_layout& m) { return m.ld >= int64_t(m.rows); };
    return rows(a, product.a) == d.rows && cols(b, product.b) == d.cols &&
           cols(a, product.a) == rows(b, product.b) && c.rows == d.rows && c.cols == d.cols &&
           c.type == d.type && a.type == b.type && has_room(a) && has_room(b) && has_room(c) && has_room(d);
}

bool is_aligned(const void* data, uint64_t bytes) {
    return bytes != 0 && reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace

size_t emulation::products() {
    return given;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS         ? "success"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
                                                   : "invalid value";
}
size_t cublasLtGetVersion() {
    return 130000;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new coeus_emulated_cublas;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    require(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, "cuBLASLt: sums are not in float32");
    *product = new coeus_emulated_product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t which, const void* value,
                                              size_t bytes) {
    (which == CUBLASLT_MATMUL_DESC_TRANSA ? product->a : product->b) =
        value_of<cublasOperation_t>(value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
    *layout = new coeus_emulated_layout{type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new coeus_emulated_preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, size_t bytes) {
    switch (which) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            preference->workspace = value_of<uint64_t>(value, bytes);
            break;
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            preference->reductions = value_of<uint32_t>(value, bytes);
            break;
        default:
            preference->alignments[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] =
                value_of<uint32_t>(value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

// words of an algorithm: magic number, number of the algorithm, problem, workspace, promised alignments
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    if (!fits(*product, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
    require(preference->reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
            "cuBLASLt: algorithms whose sums have no order, or are rounded, are allowed");
    *found = 0;
    for (uint64_t which = 0; which < algorithms && *found < wanted; ++which) {
        if (needed_workspace[which] > preference->workspace) continue;
        cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
        result = {{{magic, which, hash_of_problem(*product, {a, b, c, d}), needed_workspace[which]}},
                  size_t(needed_workspace[which]),
                  CUBLAS_STATUS_SUCCESS};
        std::copy_n(preference->alignments, 4, result.algo.data + 4);
    }
    return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
    if (algorithm->data[0] != magic || algorithm->data[2] != hash_of_problem(*product, {a, b, c, d}))
        return CUBLAS_STATUS_INVALID_VALUE;
    result->workspaceSize = size_t(algorithm->data[3]);
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    cublasLtMatmulHeuristicResult_t checked = {};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(handle, product, a_layout, b_layout, c_layout, d_layout, algorithm, &checked);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const uint64_t* const promised = algorithm->data + 4;
    if (!is_aligned(a, promised[0]) || !is_aligned(b, promised[1]) || !is_aligned(c, promised[2]) ||
        !is_aligned(d, promised[3]) || workspace_bytes < checked.workspaceSize || !workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    const float factor = *static_cast<const float*>(alpha), of_addend = *static_cast<const float*>(beta);
    require(factor == 1 && (of_addend == 0 || of_addend == 1), "cuBLASLt: the stand-in has no such factors");
    require(c != d || *c_layout == *d_layout, "cuBLASLt: in place, but the layouts of c and d differ");
    const Tensor result = tensor_of(d, *d_layout),
                 addend = of_addend != 0 ? tensor_of(c, *c_layout) : Tensor();
    const Operand first(tensor_of(b, *b_layout), product->b == CUBLAS_OP_T),
        second(tensor_of(a, *a_layout), product->a == CUBLAS_OP_T);
    ++given;
    emulation::give(stream, [=] {
        Exec planning, own;
        dry_kernels().gemm(planning, result, first, second, addend);
        own.workspace = Arena(planning.workspace.peak(), "product");
        cpu_kernels().gemm(own, result, first, second, addend);
    });
    return CUBLAS_STATUS_SUCCESS;
}
