// SPDX-License-Identifier: Apache-2.0
// Matrix products by oneDNN's matmul primitive, for oneDNN 2 and 3; only this file depends on the version.
// Primitives are created once for each shape and kept in the Exec.
#include "onednn_gemm.hpp"

#include "../cpu.hpp"
#include "coeus/device/cpu.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace coeus::cpu {

namespace {

using dnnl::matmul;
using dnnl::memory;

// What a primitive is created for: sizes, strides, types, whether it adds to d, and whether it has a factor.
using Key =
    std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Dtype, Dtype, bool, bool>;

struct PlannedProduct {
    std::optional<matmul> primitive;  // empty if oneDNN has no kernel for it on this CPU
    memory a, b, d, factor;
    std::unordered_map<int, memory> arguments;
};

class OneDnnState : public BackendState {
public:
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    std::map<Key, PlannedProduct> products;
};

OneDnnState& state_of(Exec& exec) {
    if (!exec.backend) exec.backend = std::make_unique<OneDnnState>();
    return static_cast<OneDnnState&>(*exec.backend);
}

memory::data_type type_of(Dtype type) {
    return type == Dtype::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// An operand for oneDNN, which knows by the strides whether it is transposed.
memory::desc operand_desc(int64_t rows, int64_t cols, const Operand& operand) {
    const int64_t ld = operand.tensor.ld;
    return {{rows, cols},
            type_of(operand.tensor.dtype),
            operand.is_transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

matmul::primitive_desc describe(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                const memory::desc& d, const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
    return matmul::primitive_desc(engine, a, b, d, attributes, true);
#else
    return matmul::primitive_desc(matmul::desc(a, b, d), attributes, engine, true);
#endif
}

PlannedProduct make_product(OneDnnState& state, const Tensor& d, const Operand& a, const Operand& b,
                            int64_t depth, bool accumulate, bool has_factor) {
    const memory::desc a_desc = operand_desc(d.rows(), depth, a), b_desc = operand_desc(depth, d.cols(), b);
    const memory::desc d_desc({d.rows(), d.cols()}, type_of(d.dtype), memory::dims{d.cols(), 1});
    const memory::desc factor_desc({1, 1}, memory::data_type::f32, memory::dims{1, 1});
    dnnl::post_ops after;
    if (has_factor) after.append_binary(dnnl::algorithm::binary_mul, factor_desc);
    if (accumulate) after.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(after);
    PlannedProduct product;
    const matmul::primitive_desc description = describe(state.engine, a_desc, b_desc, d_desc, attributes);
    // the kernel for everything else is slower than our own product
    if (!description || std::string_view(description.impl_info_str()).starts_with("ref")) return product;
    product.primitive.emplace(description);
    product.a = memory(a_desc, state.engine, DNNL_MEMORY_NONE);
    product.b = memory(b_desc, state.engine, DNNL_MEMORY_NONE);
    product.d = memory(d_desc, state.engine, DNNL_MEMORY_NONE);
    product.arguments = {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.d}};
    if (has_factor) {
        product.factor = memory(factor_desc, state.engine, DNNL_MEMORY_NONE);
        product.arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, product.factor);
    }
    return product;
}

}  // namespace

bool onednn_is_fast(Dtype type) {
    static const std::string level = cpu_vector_level();
    return type == Dtype::bf16 ? level == "avx512 bf16" : type == Dtype::f32 && level.starts_with("avx512");
}

bool onednn_gemm(Exec& exec, Tensor d, const Operand& a, const Operand& b, Tensor c, int64_t depth,
                 float factor) {
    if (!d.dense()) return false;
    OneDnnState& state = state_of(exec);
    const Key key = {d.rows(),        d.cols(),       depth,   a.tensor.ld, b.tensor.ld, a.is_transposed,
                     b.is_transposed, a.tensor.dtype, d.dtype, bool(c),     factor != 1};
    auto at = state.products.find(key);
    if (at == state.products.end())
        at = state.products.emplace(key, make_product(state, d, a, b, depth, bool(c), factor != 1)).first;
    PlannedProduct& product = at->second;
    if (!product.primitive) return false;
    // a residual is first copied to d and then added to while it is in the cache
    if (c && c.data != d.data) Cpu::cast(exec, d, c);
    omp_set_num_threads(exec.threads);
    product.a.set_data_handle(a.tensor.data);
    product.b.set_data_handle(b.tensor.data);
    product.d.set_data_handle(d.data);
    if (factor != 1) product.factor.set_data_handle(&factor);
    product.primitive->execute(state.stream, product.arguments);
    state.stream.wait();
    return true;
}

}  // namespace coeus::cpu

namespace coeus {

int64_t gemm_library_bytes(Dtype compute) {
    constexpr int64_t mib = 1 << 20;
    if (compute == Dtype::f64) return 2 * mib;  // measured with OpenBLAS 0.3.21
    // measured without AVX-512, where our own packed product computes
    if (!cpu::onednn_is_fast(compute)) return 2 * mib;
    // 5 MiB of it for products that are computed in slabs, see gemm.cpp
    if (compute == Dtype::f32) return 12 * mib;
    // measured with oneDNN 3.7 and oneDNN 2.6; the kernels for AMX are larger
    const auto amx = unsigned(dnnl::cpu_isa::avx512_core_amx);
    const bool has_amx = (unsigned(dnnl::get_effective_cpu_isa()) & amx) == amx;
    return (DNNL_VERSION_MAJOR >= 3 ? 12 : 7) * mib + (has_amx ? 4 * mib : 0);
}

}  // namespace coeus
