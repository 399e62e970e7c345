// SPDX-License-Identifier: Apache-2.0
#include "../workspace.hpp"
#include "cublaslt.hpp"

#include <algorithm>
#include <cstring>

namespace coeus::cuda {

namespace {

cudaDataType_t type_of(Dtype type) {
    switch (type) {
        case Dtype::f32: return CUDA_R_32F;
        case Dtype::bf16: return CUDA_R_16BF;
        case Dtype::fp8_e4m3: return CUDA_R_8F_E4M3;
        case Dtype::fp8_e5m2: return CUDA_R_8F_E5M2;
        default: throw LogicError(fmt::format("a product on CUDA got {}", name_of(type)));
    }
}

/// Operands may begin within a row or a shard, so the alignment varies. No algorithm uses more than 256
/// bytes.
uint32_t alignment_of(const Tensor& t) {
    const auto address = reinterpret_cast<uintptr_t>(t.data);
    return uint32_t(address == 0 ? 256 : std::min<uintptr_t>(256, address & -address));
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, T value) {
    COEUS_CHECK_CUBLAS(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value));
}
void set_transpose(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, bool is_transposed) {
    set(operation, which, is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
}

// Names of newer headers than that of CUDA 12.4: CUBLASLT_MATMUL_DESC_A_SCALE_MODE and ..._B_...;
// CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 (12.8) and ..._OUTER_VEC_32F (12.9)
constexpr int a_scale_mode = 31, b_scale_mode = 32;
constexpr int32_t blocks_of_32 = 2, outer_vectors = 3;

void set_modes(cublasLtMatmulDesc_t operation, int32_t mode) {
    for (const int which : {a_scale_mode, b_scale_mode})
        set(operation, static_cast<cublasLtMatmulDescAttributes_t>(which), mode);
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
    constexpr const char* scalings[] = {"", "-factor", "-whole", "-vectors", "-blocks"};
    return fmt::format("{}{}-{}-{}x{}x{}-{}{}-{}-ld{},{},{},{}-align{},{},{},{}{}{}{}{}", name_of(type_a),
                       type_b == type_a ? "" : fmt::format(",{}", name_of(type_b)), name_of(out), m, n, k,
                       transpose_a ? 't' : 'n', transpose_b ? 't' : 'n',
                       !adds      ? "put"
                       : in_place ? "accumulate"
                                  : "add",
                       ld_a, ld_b, ld_c, ld_d, alignment_a, alignment_b, alignment_c, alignment_d,
                       scalings[size_t(scaling)], fast ? "-fast" : "", tf32 ? "-tf32" : "",
                       sms > 0 ? fmt::format("-sms{}", sms) : "");
}

ProductShape shape_of(const ProductOperands& o, int sms, bool allow_tf32) {
    const Tensor &a = o.a.tensor, &b = o.b.tensor;
    return {o.d.rows(),
            o.d.cols(),
            o.a.is_transposed ? a.rows() : a.cols(),
            a.ld,
            b.ld,
            o.c.ld,
            o.d.ld,
            alignment_of(a),
            alignment_of(b),
            alignment_of(o.c),
            alignment_of(o.d),
            o.a.is_transposed,
            o.b.is_transposed,
            o.adds,
            o.c.data == o.d.data,
            a.dtype,
            b.dtype,
            o.d.dtype,
            o.scaling,
            o.fast,
            sms,
            allow_tf32 && a.dtype == Dtype::f32};
}

/// Describes one of our matrices, [rows, cols], to cuBLASLt, which stores matrices by columns: its columns
/// are our rows.
void Product::make_layout(Layout& layout, Dtype type, int64_t rows, int64_t cols, int64_t ld) {
    COEUS_CHECK_CUBLAS(
        cublasLtMatrixLayoutCreate(layout.out(), type_of(type), uint64_t(cols), uint64_t(rows), ld));
}

Product::Product(const ProductShape& s) : scaling_(s.scaling) {
    const cublasComputeType_t compute = s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    COEUS_CHECK_CUBLAS(cublasLtMatmulDescCreate(operation_.out(), compute, CUDA_R_32F));
    if (s.sms > 0) set(operation_, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t(s.sms));
    set_transpose(operation_, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b);
    set_transpose(operation_, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a);
    if (s.scaling == Scaling::factor)
        set(operation_, CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t(CUBLASLT_POINTER_MODE_DEVICE));
    if (s.scaling == Scaling::vectors) set_modes(operation_, outer_vectors);
    if (s.scaling == Scaling::blocks) set_modes(operation_, blocks_of_32);
    if (s.fast) set(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t(1));
    make_layout(first_, s.type_b, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ld_b);
    make_layout(second_, s.type_a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.ld_a);
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

void Product::set_scales(const ProductOperands& o) const {
    if (scaling_ < Scaling::whole) return;
    set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o.scale_b);
    set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o.scale_a);
}

std::vector<Algorithm> Product::suggestions(cublasLtHandle_t handle, int most) const {
    // a vector of them makes nvcc 13.0 fail
    cublasLtMatmulHeuristicResult_t results[most_suggestions] = {};
    require(most <= most_suggestions, "cuBLASLt is not asked for so many algorithms");
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, operation_, first_, second_, addend_,
                                                                 result_, preference_, most, results, &found);
    // a library that lacks vectors of scales for these types may call them invalid
    const bool has_none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                          (scaling_ == Scaling::vectors && status == CUBLAS_STATUS_INVALID_VALUE);
    if (!has_none) check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<Algorithm> algorithms;
    for (int i = 0; i < found; ++i)
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            results[i].workspaceSize <= size_t(workspace::cublaslt))
            algorithms.push_back(words_of(results[i].algo));
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
    const float factors[] = {1, o.adds ? 1.0f : 0.0f};  // of the sums, and of c
    const auto* const alpha = scaling_ == Scaling::factor ? static_cast<const float*>(o.scale_a) : factors;
    return cublasLtMatmul(handle, operation_, alpha, o.b.tensor.data, first_, o.a.tensor.data, second_,
                          alpha + 1, o.c.data, addend_, o.d.data, result_, &of_library, o.workspace.data,
                          size_t(o.workspace.bytes()), stream);
}

}  // namespace coeus::cuda
