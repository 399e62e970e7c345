// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels compute the products, with the same result for all algorithms.
#include "stand_ins/cuda/cublasLt.h"

#include "coeus/base/small_floats.hpp"
#include "coeus/kernels/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

using namespace coeus;

struct coeus_emulated_cublas {};
struct coeus_emulated_product {
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
    bool factors_on_device = false, fast = false, tf32 = false;
    int32_t sm_count = 0;        // 0: all
    int32_t modes[2] = {};       // of the scales of a and b
    const void* scales[2] = {};  // null: 1
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
std::array<size_t, algorithms> microseconds = {1, 1, 1};
std::atomic<size_t> given = 0, given_of_8_bits = 0;
std::atomic<int> last_sm_count = 0;
size_t version = 130000;
bool has_vector_products = true;

template <class T>
T value_of(const void* value, size_t bytes) {
    require(bytes == sizeof(T), "cuBLASLt: an attribute of another size");
    return *static_cast<const T*>(value);
}

Dtype dtype_of_library(cudaDataType_t type) {
    switch (type) {
        case CUDA_R_32F: return Dtype::f32;
        case CUDA_R_16BF: return Dtype::bf16;
        case CUDA_R_8F_E4M3: return Dtype::fp8_e4m3;
        case CUDA_R_8F_E5M2: return Dtype::fp8_e5m2;
    }
    throw LogicError("cuBLASLt: the stand-in does not know the type");
}
bool has_8_bits(const coeus_emulated_layout& layout) {
    return is_8_bit_float(dtype_of_library(layout.type));
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
    for (const int64_t value : {int64_t(product.a), int64_t(product.b), int64_t(product.factors_on_device),
                                int64_t(product.fast), int64_t(product.tf32), int64_t(product.sm_count),
                                int64_t(product.modes[0]), int64_t(product.modes[1])})
        hash_in(hash, uint64_t(value));
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
           c.type == d.type && !has_8_bits(d) && has_8_bits(a) == has_8_bits(b) &&
           (has_8_bits(a) || a.type == b.type) && has_room(a) && has_room(b) && has_room(c) && has_room(d);
}

bool is_aligned(const void* data, uint64_t bytes) {
    return bytes != 0 && reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

constexpr size_t first_with_modes = 120800, first_with_vectors = 120900;

/// The rules of products of 8-bit floats, and that others have no scales.
bool has_algorithm(const coeus_emulated_product& product, const coeus_emulated_layout& a,
                   const coeus_emulated_layout& b, const coeus_emulated_layout& c,
                   const coeus_emulated_layout& d) {
    const int gpu = emulation::architecture;
    const int32_t mode = product.modes[0];
    if (product.tf32 && a.type != CUDA_R_32F) return false;
    if (!has_8_bits(a))
        return mode == 0 && product.modes[1] == 0 && !product.scales[0] && !product.scales[1] &&
               !product.fast;
    const auto in_16 = [](const coeus_emulated_layout* m) {
        return m->rows % 16 == 0 && m->cols % 16 == 0 && m->ld % 16 == 0;
    };
    const bool any_transposes = gpu >= 100 && gpu < 120,
               is_tn = product.a == CUBLAS_OP_T && product.b == CUBLAS_OP_N,
               both_e5m2 = a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2;
    if (gpu < 89 || both_e5m2 || !std::ranges::all_of(std::array{&a, &b, &c, &d}, in_16) ||
        (!is_tn && !any_transposes) || product.modes[1] != mode)
        return false;
    switch (mode) {
        case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F: return true;
        case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
            return gpu == 90 && version >= first_with_vectors && has_vector_products;
        case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
            return gpu >= 100 && (product.a == CUBLAS_OP_N ? a.cols : a.rows) % 32 == 0;
        default: return false;
    }
}

/// The promises that a call for 8-bit floats must keep: aligned addresses, and scales.
bool keeps_promises(const coeus_emulated_product& product, std::initializer_list<const void*> addresses) {
    const bool has_scalars = product.modes[0] == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    return std::ranges::all_of(addresses, [](const void* data) { return is_aligned(data, 16); }) &&
           std::ranges::all_of(product.scales, [=](const void* scale) {
               return has_scalars ? is_aligned(scale, 4) : scale && is_aligned(scale, 16);
           });
}

/// An operand of 8-bit floats, at the time of the product.
struct Operand8 {
    const void* data;
    coeus_emulated_layout layout;
    bool is_transposed, by_rows;  ///< of our matrix; its rows are what is not summed
    int32_t mode;
    const void* scales;

    double code_value(int64_t i, int64_t j) const {
        const uint8_t code = static_cast<const uint8_t*>(data)[i * layout.ld + j];
        return layout.type == CUDA_R_8F_E4M3 ? e4m3_value(code) : e5m2_value(code);
    }
    /// The scale of a block of 32 elements of the depth.
    double block_scale(int64_t outer, int64_t depth) const {
        const int64_t blocks = (int64_t(by_rows ? layout.rows : layout.cols) + 31) / 32, block = depth / 32;
        const int64_t tile = outer / 128 * ((blocks + 3) / 4) + block / 4;
        return e8m0_value(static_cast<const uint8_t*>(
            scales)[tile * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 + block % 4]);
    }
    /// The values without scales of whole operands or of what is not summed.
    std::vector<float> values() const {
        std::vector<float> list;
        for (int64_t i = 0; i < int64_t(layout.cols); ++i)
            for (int64_t j = 0; j < int64_t(layout.rows); ++j)
                list.push_back(float(code_value(i, j) * (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0
                                                             ? block_scale(by_rows ? i : j, by_rows ? j : i)
                                                             : 1)));
        return list;
    }
    float scale(int64_t outer) const {
        const auto* const numbers = static_cast<const float*>(scales);
        if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 || !scales) return 1;
        return numbers[mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? outer : 0];
    }
};

void multiply(const Tensor& d, const Operand& a, const Operand& b, const Tensor& c) {
    Exec planning, own;
    dry_kernels().gemm(planning, d, a, b, c);
    own.workspace = Arena(planning.workspace.peak(), "product");
    cpu_kernels().gemm(own, d, a, b, c);
}

/// An operand in float32, rounded to TF32: to nearest, ties away from 0, as cvt.rna does.
class Rounded {
public:
    explicit Rounded(const Operand& from)
        : rows_(from.tensor.rows()), cols_(from.tensor.cols()), is_transposed_(from.is_transposed) {
        for (int64_t i = 0; i < rows_ * cols_; ++i) {
            constexpr uint32_t half = 1u << 12, kept = ~((1u << 13) - 1);
            const auto bits = std::bit_cast<uint32_t>(float(element(from.tensor, i)));
            values_.push_back(std::bit_cast<float>((bits + half) & kept));
        }
    }
    Operand operand() { return {Tensor(values_.data(), Dtype::f32, {rows_, cols_}), is_transposed_}; }

private:
    int64_t rows_, cols_;
    bool is_transposed_;
    std::vector<float> values_;
};

/// d = factor a b + c, for a as the library counts: our b.
void multiply(const Tensor& d, const Operand8& first, const Operand8& second, double factor,
              const Tensor& c) {
    const auto tensor = [](std::vector<float>& values, const Operand8& operand) {
        return Operand(
            Tensor(values.data(), Dtype::f32, {int64_t(operand.layout.cols), int64_t(operand.layout.rows)}),
            operand.is_transposed);
    };
    std::vector<float> of_first = first.values(), of_second = second.values(), sums(size_t(d.count()));
    multiply(Tensor(sums.data(), Dtype::f32, {d.rows(), d.cols()}), tensor(of_second, second),
             tensor(of_first, first), {});
    for (int64_t i = 0; i < d.rows(); ++i)
        for (int64_t j = 0; j < d.cols(); ++j) {
            const int64_t at = i * d.cols() + j;
            const float sum = sums[size_t(at)] * second.scale(i) * first.scale(j) * float(factor);
            set_element(d, at, double(sum + (c ? float(element(c, at)) : 0)));
        }
}

}  // namespace

size_t emulation::products() {
    return given;
}

size_t emulation::products_of_8_bits() {
    return given_of_8_bits;
}

int emulation::last_sm_count_target() {
    return last_sm_count;
}

void emulation::set_microseconds(const std::array<size_t, 3>& of_suggestions) {
    microseconds = of_suggestions;
}

void emulation::set_cublas_version(size_t of_library) {
    version = of_library;
}

void emulation::set_vector_products(bool are_there) {
    has_vector_products = are_there;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS         ? "success"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
                                                   : "invalid value";
}
size_t cublasLtGetVersion() {
    return version;
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
    require((compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32) && scale == CUDA_R_32F,
            "cuBLASLt: sums are not in float32");
    *product = new coeus_emulated_product;
    (*product)->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t which, const void* value,
                                              size_t bytes) {
    switch (which) {
        case CUBLASLT_MATMUL_DESC_TRANSA: product->a = value_of<cublasOperation_t>(value, bytes); break;
        case CUBLASLT_MATMUL_DESC_TRANSB: product->b = value_of<cublasOperation_t>(value, bytes); break;
        case CUBLASLT_MATMUL_DESC_POINTER_MODE:
            product->factors_on_device = value_of<int32_t>(value, bytes) == CUBLASLT_POINTER_MODE_DEVICE;
            break;
        case CUBLASLT_MATMUL_DESC_FAST_ACCUM: product->fast = value_of<int8_t>(value, bytes) != 0; break;
        case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
            product->sm_count = value_of<int32_t>(value, bytes);
            if (product->sm_count < 0) return CUBLAS_STATUS_INVALID_VALUE;
            break;
        case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
            product->scales[which - CUBLASLT_MATMUL_DESC_A_SCALE_POINTER] =
                value_of<const void*>(value, bytes);
            break;
        case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
        case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
            if (version < first_with_modes) return CUBLAS_STATUS_INVALID_VALUE;
            product->modes[which - CUBLASLT_MATMUL_DESC_A_SCALE_MODE] = value_of<int32_t>(value, bytes);
            break;
    }
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
    if (!has_algorithm(*product, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
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
    if (!has_algorithm(*product, *a, *b, *c, *d) || algorithm->data[0] != magic ||
        algorithm->data[2] != hash_of_problem(*product, {a, b, c, d}))
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
        !is_aligned(d, promised[3]) || workspace_bytes < checked.workspaceSize || !is_aligned(workspace, 256))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_8_bits(*a_layout) && !keeps_promises(*product, {a, b, c, d})) return CUBLAS_STATUS_INVALID_VALUE;
    const bool on_device = product->factors_on_device;
    const auto* const factors = static_cast<const float*>(alpha);
    const auto* const of_addend = static_cast<const float*>(beta);
    const float factor = on_device ? 0 : *factors, addend_factor = on_device ? 0 : *of_addend;
    require(on_device || (factor == 1 && (addend_factor == 0 || addend_factor == 1)),
            "cuBLASLt: the stand-in has no such factors");
    require(c != d || *c_layout == *d_layout, "cuBLASLt: in place, but the layouts of c and d differ");
    const Tensor result = tensor_of(d, *d_layout), addend = tensor_of(c, *c_layout);
    const Operand first(tensor_of(b, *b_layout), product->b == CUBLAS_OP_T),
        second(tensor_of(a, *a_layout), product->a == CUBLAS_OP_T);
    const size_t duration = microseconds[algorithm->data[1]];
    ++given;
    last_sm_count = product->sm_count;
    if (has_8_bits(*a_layout)) {
        ++given_of_8_bits;
        const Operand8 of_a = {a,
                               *a_layout,
                               product->a == CUBLAS_OP_T,
                               product->a == CUBLAS_OP_T,
                               product->modes[0],
                               product->scales[0]};
        const Operand8 of_b = {b,
                               *b_layout,
                               product->b == CUBLAS_OP_T,
                               product->b == CUBLAS_OP_N,
                               product->modes[1],
                               product->scales[1]};
        emulation::give(stream, duration, [=] {
            const float of_sums = on_device ? *factors : factor,
                        of_c = on_device ? *of_addend : addend_factor;
            multiply(result, of_a, of_b, double(of_sums), of_c != 0 ? addend : Tensor());
        });
        return CUBLAS_STATUS_SUCCESS;
    }
    require(!product->tf32 || !on_device, "cuBLASLt: the stand-in has no such product in TF32");
    emulation::give(stream, duration, [=, tf32 = product->tf32] {
        if (tf32)
            return multiply(result, Rounded(first).operand(), Rounded(second).operand(),
                            addend_factor != 0 ? addend : Tensor());
        if (!on_device) return multiply(result, first, second, addend_factor != 0 ? addend : Tensor());
        std::vector<float> sums(size_t(result.count()));
        const Tensor products(sums.data(), Dtype::f32, {result.rows(), result.cols()});
        multiply(products, first, second, {});
        for (int64_t i = 0; i < result.count(); ++i)
            set_element(result, i,
                        double(*factors * sums[size_t(i)] +
                               (*of_addend != 0 ? *of_addend * float(element(addend, i)) : 0)));
    });
    return CUBLAS_STATUS_SUCCESS;
}
