// SPDX-License-Identifier: Apache-2.0
#include "cublaslt.hpp"
#include "workspace.hpp"

#include <algorithm>
#include <cstring>

namespace coeus::cuda {

namespace {

constexpr int most_suggestions = 8;

cudaDataType_t type_of(Dtype type) {
    switch (type) {
        case Dtype::f32: return CUDA_R_32F;
        case Dtype::bf16: return CUDA_R_16BF;
        default:
            throw LogicError(fmt::format("gemm on CUDA got {}; it takes float32 or bfloat16", name_of(type)));
    }
}

/// Operands may begin within a row or a shard, so the alignment varies. No algorithm uses more than 256
/// bytes.
uint32_t alignment_of(const Tensor& t) {
    const auto address = reinterpret_cast<uintptr_t>(t.data);
    return uint32_t(address == 0 ? 256 : std::min<uintptr_t>(256, address & -address));
}

void set_transpose(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, bool is_transposed) {
    const cublasOperation_t value = is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    COEUS_CHECK_CUBLAS(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which, T value) {
    COEUS_CHECK_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value));
}

Algorithm words_of(const cublasLtMatmulAlgo_t& algorithm) {
    Algorithm words;
    static_assert(sizeof words == sizeof algorithm);
    std::memcpy(&words, &algorithm, sizeof words);
    return words;
}
cublasLtMatmulAlgo_t algorithm_of(const Algorithm& words) {
    cublasLtMatmulAlgo_t algorithm;
    std::memcpy(&algorithm, &words, sizeof algorithm);
    return algorithm;
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw SystemError(fmt::format("cuBLASLt: {}: {}", call, cublasLtGetStatusString(status)));
}

std::string ProductShape::text() const {
    return fmt::format("{}-{}-{}x{}x{}-{}{}-{}-ld{},{},{},{}-align{},{},{},{}", name_of(type), name_of(out),
                       m, n, k, transpose_a ? 't' : 'n', transpose_b ? 't' : 'n',
                       !adds      ? "put"
                       : in_place ? "accumulate"
                                  : "add",
                       ld_a, ld_b, ld_c, ld_d, alignment_a, alignment_b, alignment_c, alignment_d);
}

ProductShape shape_of(const ProductOperands& o, bool transpose_a, bool transpose_b) {
    return {o.d.rows(),
            o.d.cols(),
            transpose_a ? o.a.rows() : o.a.cols(),
            o.a.ld,
            o.b.ld,
            o.c.ld,
            o.d.ld,
            alignment_of(o.a),
            alignment_of(o.b),
            alignment_of(o.c),
            alignment_of(o.d),
            transpose_a,
            transpose_b,
            o.adds,
            o.c.data == o.d.data,
            o.a.dtype,
            o.d.dtype};
}

/// Describes one of our matrices, [rows, cols], to cuBLASLt, which stores matrices by columns: its columns
/// are our rows.
void Product::make_layout(Layout& layout, Dtype type, int64_t rows, int64_t cols, int64_t ld) {
    COEUS_CHECK_CUBLAS(
        cublasLtMatrixLayoutCreate(layout.out(), type_of(type), uint64_t(cols), uint64_t(rows), ld));
}

Product::Product(const ProductShape& s)
    : name_(fmt::format("{} x {} x {} in {}", s.m, s.n, s.k, name_of(s.type))) {
    COEUS_CHECK_CUBLAS(cublasLtMatmulDescCreate(operation_.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set_transpose(operation_, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b);
    set_transpose(operation_, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a);
    make_layout(first_, s.type, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ld_b);
    make_layout(second_, s.type, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.ld_a);
    make_layout(addend_, s.out, s.m, s.n, s.ld_c);
    make_layout(result_, s.out, s.m, s.n, s.ld_d);
    COEUS_CHECK_CUBLAS(cublasLtMatmulPreferenceCreate(preference_.out()));
    set(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace::cublaslt));
    set(preference_, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(preference_, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.alignment_b);
    set(preference_, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.alignment_a);
    set(preference_, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.alignment_c);
    set(preference_, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.alignment_d);
}

std::vector<Algorithm> Product::suggestions(cublasLtHandle_t handle) const {
    cublasLtMatmulHeuristicResult_t results[most_suggestions] = {};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation_, first_, second_, addend_, result_, preference_,
                                       most_suggestions, results, &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<Algorithm> algorithms;
    for (int i = 0; i < found; ++i)
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            results[i].workspaceSize <= size_t(workspace::cublaslt))
            algorithms.push_back(words_of(results[i].algo));
    if (algorithms.empty())
        throw SystemError(fmt::format("cuBLASLt has no algorithm for a product of {}", name_));
    return algorithms;
}

bool Product::takes(cublasLtHandle_t handle, const Algorithm& algorithm) const {
    const cublasLtMatmulAlgo_t of_library = algorithm_of(algorithm);
    cublasLtMatmulHeuristicResult_t result = {};
    return cublasLtMatmulAlgoCheck(handle, operation_, first_, second_, addend_, result_, &of_library,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= size_t(workspace::cublaslt);
}

cublasStatus_t Product::run(cublasLtHandle_t handle, const Algorithm& algorithm, const ProductOperands& o,
                            cudaStream_t stream) const {
    const cublasLtMatmulAlgo_t of_library = algorithm_of(algorithm);
    const float one = 1, beta = o.adds ? 1 : 0;
    return cublasLtMatmul(handle, operation_, &one, o.b.data, first_, o.a.data, second_, &beta, o.c.data,
                          addend_, o.d.data, result_, &of_library, o.workspace.data,
                          size_t(o.workspace.bytes()), stream);
}

}  // namespace coeus::cuda
