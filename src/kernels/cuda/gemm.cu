// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt. Our matrices are stored by rows, its by columns: d = op(a) op(b) + c is asked
// for as d^T = op(b)^T op(a)^T + c^T, in which no element moves. Sums are in float32. Reductions that depend
// on the order in which blocks arrive are left out, so that equal calls give equal bits.
#include "cuda.hpp"
#include "launch.hpp"
#include "workspace.hpp"

#include <algorithm>
#include <cublasLt.h>
#include <map>

namespace coeus::cuda {

namespace {

void check_cublas(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw SystemError(fmt::format("cuBLASLt: {}: {}", call, cublasLtGetStatusString(status)));
}
#define COEUS_CHECK_CUBLAS(call) check_cublas(call, #call)

cudaDataType_t type_of(Dtype type) {
    switch (type) {
        case Dtype::f32: return CUDA_R_32F;
        case Dtype::bf16: return CUDA_R_16BF;
        default:
            throw LogicError(fmt::format("gemm on CUDA got {}; it takes float32 or bfloat16", name_of(type)));
    }
}

/// Owns a description of cuBLASLt.
template <class T, cublasStatus_t (*destroy)(T)>
class Owned {
public:
    Owned() = default;
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
        if (handle_) destroy(handle_);
    }
    T* out() { return &handle_; }
    operator T() const { return handle_; }

private:
    T handle_ = nullptr;
};
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// What decides which algorithm is best.
struct Problem {
    int64_t m, n, k;  // of our product
    int64_t ld_a, ld_b, ld_c, ld_d;
    uint32_t alignment_a, alignment_b, alignment_c, alignment_d;  // of the first elements, in bytes
    bool transpose_a, transpose_b, adds;
    Dtype type, out;
    auto operator<=>(const Problem&) const = default;
};

/// Operands may begin within a row or a shard. More than 256 bytes is of no use to any algorithm.
uint32_t alignment_of(const Tensor& t) {
    const auto address = reinterpret_cast<uintptr_t>(t.data);
    return uint32_t(address == 0 ? 256 : std::min<uintptr_t>(256, address & -address));
}

/// A product as cuBLASLt knows it, found once for each problem.
struct Plan {
    Operation operation;
    Layout a, b, c, d;
    cublasLtMatmulAlgo_t algorithm;
};

void set_transpose(const Operation& operation, cublasLtMatmulDescAttributes_t which, bool is_transposed) {
    const cublasOperation_t value = is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    COEUS_CHECK_CUBLAS(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value));
}

template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t which, T value) {
    COEUS_CHECK_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value));
}

/// A matrix of ours, [rows, cols], as one of its: columns are our rows.
void make_layout(Layout& layout, Dtype type, int64_t rows, int64_t cols, int64_t ld) {
    COEUS_CHECK_CUBLAS(
        cublasLtMatrixLayoutCreate(layout.out(), type_of(type), uint64_t(cols), uint64_t(rows), ld));
}

void find_plan(Plan& plan, cublasLtHandle_t handle, const Problem& p) {
    COEUS_CHECK_CUBLAS(cublasLtMatmulDescCreate(plan.operation.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    // its first operand is our b
    set_transpose(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b);
    set_transpose(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a);
    make_layout(plan.a, p.type, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ld_b);
    make_layout(plan.b, p.type, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.ld_a);
    make_layout(plan.c, p.out, p.m, p.n, p.ld_c);
    make_layout(plan.d, p.out, p.m, p.n, p.ld_d);
    Preference preference;
    COEUS_CHECK_CUBLAS(cublasLtMatmulPreferenceCreate(preference.out()));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace::gemm));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        CUBLASLT_REDUCTION_SCHEME_MASK & ~uint32_t(CUBLASLT_REDUCTION_SCHEME_INPLACE));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignment_b);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignment_a);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignment_c);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignment_d);
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    COEUS_CHECK_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle, plan.operation, plan.a, plan.b, plan.c, plan.d,
                                                      preference, 1, &best, &found));
    if (found == 0)
        throw SystemError(fmt::format("cuBLASLt has no algorithm for a product of {} x {} x {} in {}", p.m,
                                      p.n, p.k, name_of(p.type)));
    plan.algorithm = best.algo;
}

/// Handle and plans of all products.
struct GemmPlans : BackendState {
    cublasLtHandle_t handle = nullptr;
    std::map<Problem, Plan> plans;

    GemmPlans() { COEUS_CHECK_CUBLAS(cublasLtCreate(&handle)); }
    ~GemmPlans() override { cublasLtDestroy(handle); }

    const Plan& plan(const Problem& problem) {
        if (const auto known = plans.find(problem); known != plans.end()) return known->second;
        try {
            Plan& plan = plans[problem];
            find_plan(plan, handle, problem);
            return plan;
        } catch (...) {
            plans.erase(problem);
            throw;
        }
    }
};
GemmPlans& plans_of(CudaState& state) {
    if (!state.gemm) state.gemm = std::make_unique<GemmPlans>();
    return static_cast<GemmPlans&>(*state.gemm);
}

}  // namespace

void Cuda::gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c) {
    const int64_t m = d.rows(), n = d.cols(), k = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    require((a.is_transposed ? a.tensor.cols() : a.tensor.rows()) == m &&
                (b.is_transposed ? b.tensor.rows() : b.tensor.cols()) == n &&
                (b.is_transposed ? b.tensor.cols() : b.tensor.rows()) == k &&
                (!c || (c.rows() == m && c.cols() == n && c.dtype == d.dtype)) &&
                a.tensor.dtype == b.tensor.dtype,
            "gemm: the operands' shapes do not fit");
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (!c) return zero(exec, d);
        if (c.data != d.data) cast(exec, d, c);
        return;
    }
    CudaState& state = state_of(exec);
    GemmPlans& plans = plans_of(state);
    const Tensor addend = c ? c : d;
    const Plan& plan = plans.plan({m, n, k, a.tensor.ld, b.tensor.ld, addend.ld, d.ld, alignment_of(a.tensor),
                                   alignment_of(b.tensor), alignment_of(addend), alignment_of(d),
                                   a.is_transposed, b.is_transposed, bool(c), a.tensor.dtype, d.dtype});
    const Scope scope(exec.workspace);
    const Tensor workspace = exec.workspace.alloc(Dtype::u8, {workspace::gemm});
    const float one = 1, beta = c ? 1 : 0;
    COEUS_CHECK_CUBLAS(cublasLtMatmul(
        plans.handle, plan.operation, &one, b.tensor.data, plan.a, a.tensor.data, plan.b, &beta, addend.data,
        plan.c, d.data, plan.d, &plan.algorithm, workspace.data, size_t(workspace.bytes()), state.stream));
}

}  // namespace coeus::cuda
