// SPDX-License-Identifier: Apache-2.0
// The cases of 8-bit floats: their bytes and scales must be exact, so their bounds are 0.
#include "support/cases.hpp"

#include <cmath>
#include <cstring>

namespace coeus::test {

namespace {

constexpr Role input = Role::input, output = Role::output, update = Role::update;
using G = ScaleGroups;

const char* name_of(ScaleGroups groups) {
    constexpr const char* names[] = {"none", "one", "rows", "cols", "rows32", "cols32"};
    return names[size_t(groups)];
}
const char* name_of(ScaleRule rule) {
    constexpr const char* names[] = {"exact", "power_of_two", "mx_floor", "mx_rceil"};
    return names[size_t(rule)];
}
bool has_codes(ScaleGroups groups) {
    return scale_type(groups) == Dtype::u8;
}

/// Codes and scales, with elements between rows; `matrices` of equal shape, without elements between rows.
Argument codes_argument(const std::string& name, Role role, const Shape& shape, int64_t padding) {
    return {name, role, Kind::code, shape, 1, 1, padding};
}
Argument scales_argument(const std::string& name, Role role, ScaleGroups groups, const Shape& shape,
                         int64_t matrices, int64_t padding) {
    const int64_t beside = groups == G::rows32 ? padding / scale_block : groups == G::cols32 ? padding : 0;
    return {
        name, role,  has_codes(groups) ? Kind::code : Kind::scale, scale_shape(groups, shape, matrices), 1,
        1,    beside};
}

struct Sizes {
    int64_t matrices, rows, cols;
    int64_t padding = 0;

    Shape shape() const { return matrices > 1 ? Shape{matrices, rows, cols} : Shape{rows, cols}; }
    std::string text() const { return shape().text() + (padding ? " strided" : ""); }
    int64_t maxima(ScaleGroups groups) const {
        return count_of_maxima(groups, matrices * rows, cols, matrices);
    }
};

KernelCase largest_magnitudes_case(const Sizes& s, ScaleGroups groups, Kind kind) {
    KernelCase c;
    c.name = fmt::format("largest_magnitudes {} of {}{}", name_of(groups), s.text(),
                         kind == Kind::acc ? " acc" : "");
    // what is there is about as large as the largest of a few elements
    constexpr double bits_of_2 = 0x40000000;
    c.arguments = {{"bits", update, Kind::index, {s.maxima(groups)}, bits_of_2},
                   {"x", input, kind, s.shape(), 0, 1, s.padding}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.largest_magnitudes(e, o[0], o[1], groups, {});
    };
    c.bound_f32 = c.bound_bf16 = 0;
    return c;
}

/// `given`: rows with the maxima of larger rows. `has_scales`: false if the scales have no place.
KernelCase quantize_case(const Sizes& s, Dtype type, ScaleGroups groups, ScaleRule rule, bool given = false,
                         bool has_scales = true) {
    KernelCase c;
    c.name = fmt::format("quantize {} {} {} {}{}{}", s.text(), coeus::name_of(type), name_of(groups),
                         name_of(rule), given ? " given" : "", has_scales ? "" : " without scales");
    const int64_t beside = has_codes(groups) && s.padding ? scale_block : s.padding;
    c.arguments = {
        codes_argument("q", output, s.shape(), beside),
        scales_argument("scale", has_scales ? output : input, groups, s.shape(), s.matrices, beside),
        {"x", input, Kind::compute, s.shape(), 0, 3, s.padding},
        {"bits", input, Kind::index, {s.maxima(groups)}, 1}};
    const bool has_bits = !has_codes(groups) && (groups != G::rows || given);
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        if (has_bits) k.largest_magnitudes(e, o[3], o[2], groups, {});
        if (given)
            for (int64_t i = 0; i < o[3].count(); ++i) set_element(o[3], i, element(o[3], i) + (1 << 24));
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.quantize(e, quantized(o[0], type, groups, has_scales ? o[1] : Tensor()), o[2],
                   has_bits ? o[3] : Tensor(), rule, {});
    };
    c.bound_f32 = c.bound_bf16 = 0;
    return c;
}

/// `codes`: those of rows are written as well.
KernelCase quantize_transposed_case(const Sizes& s, Dtype type, ScaleGroups groups, ScaleRule rule,
                                    bool codes) {
    const Shape turned = {s.cols, s.rows};
    const G of_turned = groups == G::one ? G::one : G::rows;
    KernelCase c;
    c.name = fmt::format("quantize_transposed {} {} {} {}{}", s.text(), coeus::name_of(type), name_of(groups),
                         name_of(rule), codes ? " with codes" : "");
    c.arguments = {codes_argument("transposed", output, turned, s.padding),
                   scales_argument("scale", output, of_turned, turned, 1, s.padding),
                   codes_argument("q", codes ? output : input, s.shape(), s.padding),
                   {"x", input, Kind::compute, s.shape(), 0, 3, s.padding},
                   {"bits", input, Kind::index, {s.maxima(groups)}, 1}};
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.largest_magnitudes(e, o[4], o[3], groups, {});
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.quantize_transposed(e, quantized(o[0], type, of_turned, o[1]),
                              codes ? quantized(o[2], type, G::one, {}) : Tensor(), o[3], o[4], rule);
    };
    c.bound_f32 = c.bound_bf16 = 0;
    return c;
}

KernelCase copy_case(const Sizes& s, Dtype type) {
    KernelCase c;
    c.name = fmt::format("cast {} {}", s.text(), coeus::name_of(type));
    c.arguments = {codes_argument("out", output, s.shape(), 0), codes_argument("a", input, s.shape(), 0)};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.cast(e, quantized(o[0], type, G::none, {}), quantized(o[1], type, G::none, {}));
    };
    c.bound_f32 = c.bound_bf16 = 0;
    return c;
}

KernelCase scales_case(int64_t matrices, int64_t cols, ScaleGroups groups) {
    constexpr double infinity_bits = 0x7f800000;
    KernelCase c;
    c.name = fmt::format("quantize no rows {} {} of {}", name_of(groups), cols, matrices);
    const Shape shape = {matrices, 4, cols};
    c.arguments = {scales_argument("scale", output, groups, shape, matrices, 0),
                   {"bits", input, Kind::index, {count_of_maxima(groups, 4, cols, matrices)}, infinity_bits},
                   codes_argument("q", input, shape, 0),
                   {"x", input, Kind::compute, {0, cols}}};
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.quantize(e, quantized(o[2], Dtype::fp8_e5m2, groups, o[0]), o[3], o[1], ScaleRule::exact, {});
    };
    c.bound_f32 = c.bound_bf16 = 0;
    return c;
}

KernelCase dequantize_case(const Sizes& s, Dtype type, ScaleGroups groups, Kind kind) {
    KernelCase c;
    c.name = fmt::format("dequantize {} {} {}{}", s.text(), coeus::name_of(type), name_of(groups),
                         kind == Kind::acc ? " acc" : "");
    const int64_t beside = has_codes(groups) && s.padding ? scale_block : s.padding;
    c.arguments = {{"y", output, kind, s.shape(), 0, 1, s.padding},
                   codes_argument("q", input, s.shape(), beside),
                   scales_argument("scale", input, groups, s.shape(), s.matrices, beside),
                   {"x", input, Kind::compute, s.shape(), 0, 3},
                   {"bits", input, Kind::index, {s.maxima(groups)}, 1}};
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        quantize_whole(k, e, quantized(o[1], type, groups, o[2]), o[3], o[4]);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        k.dequantize(e, o[0], quantized(o[1], type, groups, o[2]));
    };
    c.bound_f32 = 1e-7;
    c.bound_bf16 = 3e-3;
    return c;
}

}  // namespace

Tensor quantized(Tensor codes, Dtype type, ScaleGroups groups, const Tensor& scales) {
    codes.dtype = type;
    codes.groups = groups;
    codes.scale = scales.data;
    return codes;
}

ScaleGroups groups_along(Along along, bool rows) {
    if (along == Along::one) return G::one;
    if (along == Along::outer) return rows ? G::rows : G::cols;
    return rows ? G::rows32 : G::cols32;
}

ScaleRule rule_of(ScaleGroups groups) {
    return has_codes(groups)  ? ScaleRule::mx_rceil
           : groups == G::one ? ScaleRule::exact
                              : ScaleRule::power_of_two;
}

int64_t count_of_maxima(ScaleGroups groups, int64_t rows, int64_t cols, int64_t matrices) {
    return groups == G::rows ? rows : groups == G::cols ? matrices * cols : 1;
}

void quantize_whole(const Kernels& k, Exec& exec, Tensor q, Tensor x, Tensor bits, const Groups& experts) {
    const bool has_bits = q.groups == G::one || q.groups == G::cols;
    if (bits.data) std::memset(bits.data, 0, size_t(bits.bytes()));
    if (has_bits) k.largest_magnitudes(exec, bits, x, q.groups, experts);
    k.quantize(exec, q, x, has_bits ? bits : Tensor(), rule_of(q.groups), experts);
}

KernelCase scaled_gemm_case(const ScaledShape& s, Residual residual, bool acc_output, bool fast,
                            int64_t padding) {
    const G of_a = groups_along(s.a, !s.transpose_a), of_b = groups_along(s.b, s.transpose_b);
    const Shape a = s.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k},
                b = s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n};
    const Kind kind = acc_output ? Kind::acc : Kind::compute;
    KernelCase c;
    c.name = fmt::format("scaled_gemm {}x{}x{} {}{} {} {} by {} {}{}{}{}{}", s.m, s.n, s.k,
                         s.transpose_a ? 't' : 'n', s.transpose_b ? 't' : 'n', coeus::name_of(s.type_a),
                         name_of(of_a), coeus::name_of(s.type_b), name_of(of_b),
                         residual == Residual::none         ? ""
                         : residual == Residual::accumulate ? " accumulate"
                                                            : " residual",
                         acc_output ? " acc" : "", fast ? " fast" : "", padding ? " strided" : "");
    const double deviation = 1 / std::sqrt(double(std::max<int64_t>(1, s.k)));
    const int64_t beside = s.a == Along::blocks && padding ? scale_block : padding;
    c.arguments = {{"d", residual == Residual::accumulate ? update : output, kind, {s.m, s.n}, 0, 1, padding},
                   codes_argument("a", input, a, beside),
                   scales_argument("scales of a", input, of_a, a, 1, beside),
                   codes_argument("b", input, b, beside),
                   scales_argument("scales of b", input, of_b, b, 1, beside),
                   {"c", input, kind, {s.m, s.n}, 0, 1, padding},
                   {"values of a", input, Kind::compute, a, 0, deviation},
                   {"values of b", input, Kind::compute, b},
                   {"bits of a", input, Kind::index, {count_of_maxima(of_a, a.rows(), a.cols())}, 1},
                   {"bits of b", input, Kind::index, {count_of_maxima(of_b, b.rows(), b.cols())}, 1}};
    const auto operand_a = [=](const Operands& o) { return quantized(o[1], s.type_a, of_a, o[2]); };
    const auto operand_b = [=](const Operands& o) { return quantized(o[3], s.type_b, of_b, o[4]); };
    // a scale beside vectors of scales is a power of two as well
    const bool powers = s.a == Along::outer || s.b == Along::outer;
    c.prepare = [=](const Kernels& k, Exec& e, const Operands& o) {
        const auto make = [&](const Tensor& q, const Tensor& x, const Tensor& bits) {
            quantize_whole(k, e, q, x, bits);
            if (powers && q.groups == G::one) k.quantize(e, q, x, bits, ScaleRule::power_of_two, {});
        };
        make(operand_a(o), o[6], o[8]);
        make(operand_b(o), o[7], o[9]);
    };
    c.call = [=](const Kernels& k, Exec& e, const Operands& o) {
        const Tensor given = residual == Residual::none         ? Tensor()
                             : residual == Residual::accumulate ? o[0]
                                                                : o[5];
        k.scaled_gemm(e, o[0], {operand_a(o), s.transpose_a}, {operand_b(o), s.transpose_b}, given, fast);
    };
    c.bound_bf16 = 4e-3;
    c.sums_8_bits = true;
    return c;
}

std::vector<KernelCase> quantization_cases() {
    std::vector<KernelCase> list;
    constexpr Dtype e4m3 = Dtype::fp8_e4m3, e5m2 = Dtype::fp8_e5m2;
    const std::vector<Sizes> any = {{1, 1, 1},       {1, 7, 33, 5}, {3, 37, 19},
                                    {1, 70, 300, 4}, {1, 3, 20000}, {1, 64, 512}},
                             blocks = {{1, 32, 32}, {1, 96, 160, 32}, {3, 32, 64}, {1, 64, 1056, 32}};
    for (const Sizes& s : any) {
        for (const G groups : {G::one, G::rows, G::cols}) {
            for (const Kind kind : {Kind::compute, Kind::acc}) {
                list.push_back(largest_magnitudes_case(s, groups, kind));
                list.push_back(dequantize_case(s, kind == Kind::acc ? e5m2 : e4m3, groups, kind));
            }
            for (const ScaleRule rule : {ScaleRule::exact, ScaleRule::power_of_two})
                for (const Dtype type : {e4m3, e5m2}) list.push_back(quantize_case(s, type, groups, rule));
        }
        list.push_back(quantize_case(s, e4m3, G::rows, ScaleRule::power_of_two, true));
        list.push_back(quantize_case(s, e4m3, G::one, ScaleRule::exact, false, false));
        for (const Dtype type : {e4m3, e5m2, Dtype::u8}) list.push_back(copy_case(s, type));
    }
    for (const Sizes& s :
         std::vector<Sizes>{{1, 1, 1}, {1, 7, 33, 5}, {1, 70, 300, 4}, {1, 128, 192}, {1, 64, 128, 16}})
        for (const Dtype type : {e4m3, e5m2}) {
            for (const bool codes : {false, true})
                list.push_back(quantize_transposed_case(s, type, G::one, ScaleRule::exact, codes));
            list.push_back(quantize_transposed_case(s, type, G::cols, ScaleRule::power_of_two, false));
        }
    for (const Sizes& s : blocks)
        for (const G groups : {G::rows32, G::cols32}) {
            for (const ScaleRule rule : {ScaleRule::mx_floor, ScaleRule::mx_rceil})
                for (const Dtype type : {e4m3, e5m2}) list.push_back(quantize_case(s, type, groups, rule));
            list.push_back(dequantize_case(s, e4m3, groups, Kind::compute));
            list.push_back(dequantize_case(s, e5m2, groups, Kind::acc));
        }
    list.push_back(dequantize_case({1, 64, 512}, e5m2, G::cols, Kind::compute));
    list.push_back(scales_case(1, 1, G::one));
    list.push_back(scales_case(3, 70, G::cols));

    using R = Residual;
    const auto products = [&](ScaledShape s, R residual, bool acc_output, bool fast, int64_t padding) {
        for (const bool ta : {false, true})
            for (const bool tb : {false, true}) {
                s.transpose_a = ta;
                s.transpose_b = tb;
                list.push_back(scaled_gemm_case(s, residual, acc_output, fast, padding));
            }
    };
    const std::vector<std::pair<Along, Along>> scales = {{Along::one, Along::one},
                                                         {Along::outer, Along::outer},
                                                         {Along::outer, Along::one},
                                                         {Along::blocks, Along::blocks}};
    for (const auto& [a, b] : scales) {
        const Dtype of_a = a == Along::one ? e5m2 : e4m3;
        products({48, 80, 64, false, true, a, b, of_a}, R::none, false, true, 0);
        products({160, 32, 96, false, true, a, b, of_a}, R::other, true, false, 0);
        products({144, 272, 160, false, true, a, b, of_a}, R::accumulate, a == Along::one, false, 16);
        if (a == Along::blocks) continue;
        products({48, 64, 80, false, true, a, b}, R::other, false, false, 0);
        products({17, 7, 33, false, true, a, b, e4m3, of_a}, R::other, false, false, 5);
        list.push_back(scaled_gemm_case({1, 1, 1, false, true, a, b}, R::none, false));
    }
    list.push_back(
        scaled_gemm_case({32, 16, 48, true, false, Along::one, Along::one, e5m2, e5m2}, R::none, false));
    list.push_back(scaled_gemm_case({0, 16, 32}, R::none, false));
    list.push_back(scaled_gemm_case({16, 0, 32}, R::none, false));
    return list;
}

}  // namespace coeus::test
