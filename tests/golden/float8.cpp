// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels for 8-bit floats against torchao (golden/README.md, section float8): casts, scales,
// blocks and linear layers. The tolerances are those of the README.
#include "../../src/kernels/scales.hpp"
#include "coeus/file/safetensors.hpp"
#include "support/catch.hpp"
#include "support/quantized.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

const std::map<std::string, Dtype> formats = {{"e4m3fn", Dtype::fp8_e4m3}, {"e5m2", Dtype::fp8_e5m2}};
const std::map<std::string, Recipe> recipes = {{"tensorwise", Recipe::tensorwise},
                                               {"rowwise", Recipe::rowwise},
                                               {"rowwise_with_gw_hp", Recipe::rowwise_with_gw_hp},
                                               {"floor", Recipe::mx_floor},
                                               {"rceil", Recipe::mx_rceil}};

OwnedTensor read(const Safetensors& file, const std::string& name) {
    OwnedTensor t(file.entry(name).dtype, file.entry(name).shape);
    file.read(name, t);
    return t;
}

bool is_nan(Dtype format, uint8_t code) {
    return std::isnan(format == Dtype::fp8_e4m3 ? e4m3_value(code) : e5m2_value(code));
}
bool equal_or_nan(float a, float b) {
    return a == b || (std::isnan(a) && std::isnan(b));
}

/// The codes of q are those of the file; any NaN for NaN.
void compare_codes(const Safetensors& file, const std::string& name, const Tensor& q) {
    REQUIRE(file.entry(name).shape.text() == q.shape.text());
    const auto expected = file.read_all<uint8_t>(name);
    for (size_t i = 0; i < expected.size(); ++i) {
        INFO(name << "[" << i << "]");
        const uint8_t code = static_cast<const uint8_t*>(q.data)[i];
        if (is_nan(q.dtype, expected[i]))
            REQUIRE(is_nan(q.dtype, code));
        else
            REQUIRE(int(code) == int(expected[i]));
    }
}

/// The parts of the names that are `before` PART `after`.
std::set<std::string> parts_of_names(const Safetensors& file, const std::string& before,
                                     const std::string& after) {
    std::set<std::string> parts;
    for (const std::string& name : file.names())
        if (name.starts_with(before) && name.ends_with(after) && name.size() > before.size() + after.size())
            parts.insert(name.substr(before.size(), name.size() - before.size() - after.size()));
    return parts;
}

/// The elements as doubles; those of 8-bit floats with their scales.
std::vector<double> values_in_double(Exec& exec, const Tensor& t) {
    OwnedTensor all(Dtype::f64, t.shape);
    if (is_8_bit_float(t.dtype))
        cpu_kernels().dequantize(exec, all, t);
    else
        cpu_kernels().cast(exec, all, t);
    const auto* const first = all.view.as<const double>();
    return {first, first + t.count()};
}

/// The sums of a b in double, and those of |a b|.
struct Sums {
    std::vector<double> exact, magnitudes;

    Sums(Exec& exec, const Tensor& d, const Operand& a, const Operand& b)
        : exact(size_t(d.count()), 0.0), magnitudes(exact) {
        const std::vector<double> x = values_in_double(exec, a.tensor), y = values_in_double(exec, b.tensor);
        const int64_t depth = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
        for (int64_t i = 0; i < d.rows(); ++i)
            for (int64_t j = 0; j < d.cols(); ++j)
                for (int64_t k = 0; k < depth; ++k) {
                    const double product = x[size_t(a.is_transposed ? k * d.rows() + i : i * depth + k)] *
                                           y[size_t(b.is_transposed ? j * depth + k : k * d.cols() + j)];
                    exact[size_t(i * d.cols() + j)] += product;
                    magnitudes[size_t(i * d.cols() + j)] += std::fabs(product);
                }
    }
};

/// A linear layer in a file: its tensors, and where the results of a recipe are.
struct Layer {
    const Safetensors& file;
    std::string tensors, results;  ///< what their names begin with
    Recipe recipe;
};

/// An operand in its form. If the file has its codes and scales, they are compared.
struct LayerOperand {
    OwnedTensor plain;
    std::optional<Quantized> in_8_bits;

    LayerOperand(Exec& exec, const Layer& layer, const std::string& role, const Form& form)
        : plain(read(layer.file, layer.tensors + role.substr(0, role.find('.')))) {
        if (!form.is_8_bit()) return;
        in_8_bits.emplace(quantized(cpu_kernels(), exec, plain, form));
        const std::string name = layer.results + role;
        if (!layer.file.has(name + ".bytes")) return;
        compare_codes(layer.file, name + ".bytes", *in_8_bits);
        const auto scales = layer.file.read_all<float>(name + ".scale");
        REQUIRE(int64_t(scales.size()) == in_8_bits->scales.view.count());
        for (size_t i = 0; i < scales.size(); ++i) {
            INFO(name << ".scale[" << i << "]");
            REQUIRE(equal_or_nan(in_8_bits->scales.view.as<const float>()[i], 1 / scales[i]));
        }
    }
    Tensor tensor() const { return in_8_bits ? in_8_bits->view : plain.view; }
};

/// Compares a product with the file and with exact sums. A result that is rounded to bfloat16 is not compared
/// with the file: if the exact sum is near the middle of two numbers, both are right.
void compare_product(Exec& exec, const Layer& layer, const std::string& result, const Operand& a,
                     const Operand& b) {
    const std::string name = layer.results + result;
    const Dtype type = layer.file.entry(name).dtype;
    const OwnedTensor file = read(layer.file, name);
    const std::vector<double> expected = values_in_double(exec, file);
    const Sums sums(exec, file, a, b);
    const bool is_8_bit = is_8_bit_float(a.tensor.dtype);
    for (const Dtype of_result : std::set{type, Dtype::f32, is_8_bit ? Dtype::f64 : Dtype::f32}) {
        const OwnedTensor d(of_result, file.view.shape);
        if (is_8_bit)
            cpu_kernels().scaled_gemm(exec, d, a, b, {}, false);
        else
            cpu_kernels().gemm(exec, d, a, b, {});
        const std::vector<double> ours = values_in_double(exec, d);
        for (size_t i = 0; i < expected.size(); ++i) {
            INFO(name << "[" << i << "] in " << name_of(of_result));
            const auto bound = [&](Dtype of) {
                const double size = std::fabs(sums.exact[i]), all = sums.magnitudes[i];
                return of == Dtype::bf16 ? size / 256 + 1e-6 * all : 2e-6 * all;
            };
            REQUIRE(close(expected[i], sums.exact[i], bound(type)));
            REQUIRE(close(ours[i], sums.exact[i], bound(of_result)));
            if (of_result != Dtype::bf16) REQUIRE(close(ours[i], expected[i], bound(type)));
        }
    }
}

void compare_layer(const Layer& layer) {
    Threads exec(2);
    const RecipeForms forms = forms_of(layer.recipe);
    const auto operand = [&](const std::string& role, const Form& form) {
        return LayerOperand(exec, layer, role, form);
    };
    const LayerOperand x = operand("input.forward", forms.x), w = operand("weight.forward", forms.w),
                       dy = operand("grad_output.dgrad", forms.dy),
                       w_of_dgrad = operand("weight.dgrad", forms.w_of_dgrad),
                       dy_of_wgrad = operand("grad_output.wgrad", forms.dy_of_wgrad),
                       x_of_wgrad = operand("input.wgrad", forms.x_of_wgrad);
    compare_product(exec, layer, "output", x.tensor(), transposed(w.tensor()));
    compare_product(exec, layer, "grad_input", dy.tensor(), w_of_dgrad.tensor());
    compare_product(exec, layer, "grad_weight", transposed(dy_of_wgrad.tensor()), x_of_wgrad.tensor());
}

}  // namespace

TEST_CASE("golden: casts to 8-bit floats and back") {
    const auto folder = golden("float8");
    if (folder.empty()) return;
    const Safetensors file = Safetensors::open((folder / "casts.safetensors").string());
    const OwnedTensor input = read(file, "input");
    Threads exec(2);
    for (const auto& [name, type] : formats) {
        const bool e4m3 = type == Dtype::fp8_e4m3;
        const auto codes = file.read_all<uint8_t>(name);
        REQUIRE(int64_t(codes.size()) == input.view.count());
        // a tensor whose largest magnitude is that of the format has the scale 1
        const Quantized q(type, input.view.shape, ScaleGroups::one);
        const OwnedTensor bits(Dtype::i32, {1});
        *bits.view.as<int32_t>() = rows::magnitude_bits(e4m3 ? E4m3::largest : E5m2::largest);
        cpu_kernels().quantize(exec, q, input, bits, ScaleRule::exact, {});
        CHECK(*q.scales.view.as<const float>() == 1);
        for (size_t i = 0; i < codes.size(); ++i) {
            const float x = input.view.as<const float>()[i];
            INFO(name << " of " << x << ", number " << i);
            // NaN too: with its sign
            REQUIRE(int(e4m3 ? encode<E4m3>(x) : encode<E5m2>(x)) == int(codes[i]));
            REQUIRE(int(static_cast<const uint8_t*>(q.elements.view.data)[i]) == int(codes[i]));
        }

        const auto decoded = file.read_all<float>(name + "_values");
        REQUIRE(decoded.size() == 256);
        const Quantized all(type, {256}, ScaleGroups::one);
        *all.scales.view.as<float>() = 1;
        for (int code = 0; code < 256; ++code)
            static_cast<uint8_t*>(all.elements.view.data)[code] = uint8_t(code);
        const OwnedTensor y(Dtype::f32, {256});
        cpu_kernels().dequantize(exec, y, all);
        for (size_t code = 0; code < 256; ++code) {
            INFO(name << ", code " << code);
            const float value = e4m3 ? e4m3_value(uint8_t(code)) : e5m2_value(uint8_t(code));
            CHECK(equal_or_nan(value, decoded[code]));
            CHECK(std::signbit(value) == std::signbit(decoded[code]));
            CHECK(equal_or_nan(y.view.as<const float>()[code], decoded[code]));
        }
        fmt::print("float8/casts, {}: compared {} casts\n", name, codes.size());
    }
}

TEST_CASE("golden: scales of 8-bit floats") {
    const auto folder = golden("float8");
    if (folder.empty()) return;
    const Safetensors file = Safetensors::open((folder / "scales.safetensors").string());
    const auto amax = file.read_all<float>("amax");
    for (const auto& [name, type] : formats)
        for (const bool power_of_two : {false, true}) {
            const float largest = type == Dtype::fp8_e4m3 ? E4m3::largest : E5m2::largest;
            const auto scales = file.read_all<float>(name + (power_of_two ? "_power_of_2" : ""));
            REQUIRE(scales.size() == amax.size());
            for (size_t i = 0; i < amax.size(); ++i) {
                INFO(name << ", power of two: " << power_of_two << ", largest magnitude " << amax[i]);
                CHECK(equal_or_nan(rows::factor_of(rows::magnitude_bits(amax[i]), largest, power_of_two),
                                   scales[i]));
            }
            fmt::print("float8/scales, {}{}: compared {} scales\n", name,
                       power_of_two ? ", powers of two" : "", scales.size());
        }
}

TEST_CASE("golden: blocks of 8-bit floats") {
    const auto folder = golden("float8");
    if (folder.empty()) return;
    const Safetensors file = Safetensors::open((folder / "mxfp8.safetensors").string());
    Threads exec(2);
    int compared = 0;
    for (const std::string& dtype : parts_of_names(file, "blocks_", ""))
        for (const auto& [format, type] : formats)
            for (const std::string& mode : parts_of_names(file, dtype + "." + format + ".", ".bytes")) {
                const std::string name = fmt::format("{}.{}.{}", dtype, format, mode);
                if (!recipes.contains(mode)) {
                    fmt::print("float8/mxfp8, {}: left out: no recipe has this mode\n", name);
                    continue;
                }
                const ScaleRule rule = forms_of(recipes.at(mode)).x.rule;
                const OwnedTensor x = read(file, "blocks_" + dtype);
                const Quantized q = quantized(cpu_kernels(), exec, x, {type, ScaleGroups::rows32, rule});
                compare_codes(file, name + ".bytes", q);
                const auto scales = file.read_all<uint8_t>(name + ".scale");
                REQUIRE(int64_t(scales.size()) == q.scales.view.count());
                for (size_t i = 0; i < scales.size(); ++i) {
                    INFO(name << ".scale[" << i << "]");
                    CHECK(int(q.scales.view.as<const uint8_t>()[i]) == int(scales[i]));
                }
                fmt::print("float8/mxfp8, {}: compared\n", name);
                ++compared;
            }
    CHECK(compared > 0);
}

TEST_CASE("golden: linear layers in 8 bits") {
    const auto folder = golden("float8");
    if (folder.empty()) return;
    int compared = 0;
    const auto compare = [&](const Safetensors& file, const std::string& name, const std::string& tensors,
                             const std::string& before) {
        for (const std::string& recipe : parts_of_names(file, before, ".output")) {
            INFO(name << ", " << recipe);
            REQUIRE(recipes.contains(recipe));
            compare_layer({file, tensors, before + recipe + ".", recipes.at(recipe)});
            fmt::print("float8/{}, {}: compared\n", name, recipe);
            ++compared;
        }
    };
    for (const std::string& name : files_in(folder)) {
        if (!name.ends_with(".safetensors")) continue;
        const Safetensors file = Safetensors::open((folder / name).string());
        if (name.starts_with("linear_")) compare(file, name, "", "");
        for (const std::string& dtype : parts_of_names(file, "layer_", ".input"))
            compare(file, name + ", " + dtype, "layer_" + dtype + ".", "layer_" + dtype + ".");
    }
    CHECK(compared > 0);
}
