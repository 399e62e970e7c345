// SPDX-License-Identifier: Apache-2.0
// Quantization: matrices in 8-bit floats with scales (Micikevicius et al. 2022, FP8 Formats for Deep
// Learning; OCP Microscaling Formats (MX) Specification 1.0), and the recipes that say what is quantized how.
// The numbers are those of torchao.
//
// A linear layer y = x W^T has three products, each of which takes its operands in the form that its recipe
// says:
//
//   forward     y = x W^T           tokens are summed over I
//   dgrad       dx = dy W           over O
//   wgrad       dW += dy^T x        over T
#pragma once

#include "coeus/device/tensor.hpp"

#include <optional>

namespace coeus {

/// How the scale of a group follows from its largest magnitude.
enum class ScaleRule : uint8_t {
    exact,         ///< the largest element becomes the largest number of the format
    power_of_two,  ///< the same scale, rounded down to a power of two
    mx_floor,      ///< a power of two by the exponent of the largest element, which may be clamped
    mx_rceil,      ///< a power of two by the quotient of both largest numbers, rounded up
};

/// A form of a matrix: 8-bit floats with scales, or (without groups) the compute type.
struct Form {
    Dtype type = Dtype::f32;
    ScaleGroups groups = ScaleGroups::none;
    ScaleRule rule = ScaleRule::exact;

    bool is_8_bit() const { return groups != ScaleGroups::none; }
    bool operator==(const Form&) const = default;
};

/// The groups of scales that are left if a matrix in this form is given as its values: one, or none.
constexpr ScaleGroups groups_of_values(const Form& form) {
    return form.groups == ScaleGroups::one && form.rule == ScaleRule::exact ? ScaleGroups::one
                                                                            : ScaleGroups::none;
}

/// The form of the transposed codes, of a matrix with one scale or with one for each column.
constexpr Form transposed(Form form) {
    if (form.groups == ScaleGroups::cols) form.groups = ScaleGroups::rows;
    return form;
}

/// The form of tokens with a scale for each of them, which all recipes of rows have.
inline constexpr Form rows_form = {Dtype::fp8_e4m3, ScaleGroups::rows, ScaleRule::power_of_two};
/// Tensor::rounded as an operand: t in this form, or its values.
inline Tensor rounded_rows(const Tensor& t) {
    Tensor q(t.rounded, t.rounded_scale ? rows_form.type : Dtype::bf16, t.shape);
    q.scale = t.rounded_scale;
    q.groups = t.rounded_scale ? rows_form.groups : groups_of_values(rows_form);
    return q;
}

/// True if products of 8-bit numbers on GPUs of this compute capability multiply rows by rows only: what is
/// summed must run along the rows of both operands.
constexpr bool multiplies_rows_only(int architecture) {
    return (architecture >= 89 && architecture < 100) || architecture >= 120;
}

/// Which products of a layer are computed in 8 bits, and how.
enum class Recipe : uint8_t { none, tensorwise, rowwise, rowwise_with_gw_hp, mx_floor, mx_rceil };

/// True if products of experts multiply 8-bit numbers with scales of rows as they are on GPUs of this compute
/// capability; otherwise these are decoded to bfloat16. This is so from sm_89 on, but not on Hopper, whose
/// wgmma multiplies the decoded numbers faster. `asked` chooses from sm_89 on.
bool experts_multiply_8_bits(int architecture, std::optional<bool> asked);

/// The forms of the operands of the three products.
struct RecipeForms {
    Form x, w;                     ///< forward
    Form dy, w_of_dgrad;           ///< gradient of the input (dgrad)
    Form dy_of_wgrad, x_of_wgrad;  ///< gradient of the weight (wgrad)

    bool operator==(const RecipeForms&) const = default;
};

constexpr RecipeForms forms_of(Recipe recipe) {
    const auto e4m3 = [](ScaleGroups groups, ScaleRule rule) { return Form{Dtype::fp8_e4m3, groups, rule}; };
    switch (recipe) {
        case Recipe::none: return {};
        case Recipe::tensorwise: {
            const Form one = e4m3(ScaleGroups::one, ScaleRule::exact);
            const Form gradient = {Dtype::fp8_e5m2, ScaleGroups::one, ScaleRule::exact};
            return {one, one, gradient, one, gradient, one};
        }
        case Recipe::rowwise:
        case Recipe::rowwise_with_gw_hp: {
            const Form rows = rows_form;
            const Form cols = e4m3(ScaleGroups::cols, ScaleRule::power_of_two);
            const Form one = e4m3(ScaleGroups::one, ScaleRule::power_of_two);
            if (recipe == Recipe::rowwise) return {rows, rows, rows, cols, cols, cols};
            return {rows, rows, rows, one, {}, {}};
        }
        case Recipe::mx_floor:
        case Recipe::mx_rceil: {
            const ScaleRule rule = recipe == Recipe::mx_floor ? ScaleRule::mx_floor : ScaleRule::mx_rceil;
            const Form rows = e4m3(ScaleGroups::rows32, rule), cols = e4m3(ScaleGroups::cols32, rule);
            return {rows, rows, rows, cols, cols, cols};
        }
    }
    return {};
}

}  // namespace coeus
