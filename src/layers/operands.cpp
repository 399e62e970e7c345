// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/operands.hpp"

namespace coeus {

namespace {

int64_t matrices_of(const Tensor& x, const Groups& experts) {
    return experts ? experts.number() : x.shape.rank == 3 ? x.shape[0] : 1;
}

void agree(Ctx& c, Tensor bits, const Communicator& ranks, Exchange exchange) {
    if (ranks.size() == 1) return;
    const ObservedExchange noted(c.exec, exchange, bits);
    ranks.all_reduce(c.exec, bits, Reduce::max);
}

// The largest magnitude of each group on this rank.
Tensor own_magnitudes(Ctx& c, Tensor x, ScaleGroups groups, const Groups& experts) {
    if (groups == ScaleGroups::one && x.has_largest()) return Tensor(x.largest, Dtype::i32, {1});
    const Tensor bits = c.temp.alloc(Dtype::i32, scale_shape(groups, x.shape, matrices_of(x, experts)));
    c.k.zero(c.exec, bits);
    c.k.largest_magnitudes(c.exec, bits, x, groups, experts);
    return bits;
}

// The largest magnitude of each group, over all ranks; absent if quantize() finds it by itself.
Tensor largest_magnitudes(Ctx& c, Tensor x, ScaleGroups groups, const Division& by, const Groups& experts) {
    const bool by_rows = groups == ScaleGroups::rows, by_one = groups == ScaleGroups::one;
    if (!by_one && groups != ScaleGroups::cols && !(by_rows && by.column_ranks.size() > 1)) return {};
    const Tensor bits = own_magnitudes(c, x, groups, experts);
    if (by_one || by_rows) agree(c, bits, by.column_ranks, Exchange::agree_on_scales);
    if (!by_rows) {
        agree(c, bits, by.other_row_ranks, Exchange::agree_on_scales);
        agree(c, bits, by.row_ranks, Exchange::agree_on_context_scales);
    }
    return bits;
}

}  // namespace

Tensor with_largest(Ctx& c, Tensor t, Tensor bits) {
    c.k.zero(c.exec, bits);
    t.largest = bits.data;
    t.largest_cols = t.cols() / bits.count();
    return t;
}

void write_in_form(Ctx& c, Tensor q, Tensor x, const Form& form, const Division& division,
                   const Groups& experts) {
    const Scope temps(c.temp);
    const Tensor bits = largest_magnitudes(c, x, form.groups, division, experts);
    c.k.quantize(c.exec, q, x, bits, form.rule, experts);
}

Tensor in_form(Ctx& c, Tensor x, const Form& form, const Division& division, const Groups& experts) {
    if (!form.is_8_bit()) return x;
    const Tensor q = c.temp.alloc(form.type, x.shape, form.groups, matrices_of(x, experts));
    write_in_form(c, q, x, form, division, experts);
    return q;
}

namespace {

bool is_given_as_values(const Ctx& c, Tensor x, const Form& form) {
    return form.is_8_bit() && c.k.takes_values && x.dtype != Dtype::f64;
}

}  // namespace

Tensor as_operand(Ctx& c, Tensor x, const Form& form, const Division& division) {
    if (!is_given_as_values(c, x, form)) return in_form(c, x, form, division);
    const Tensor y = c.temp.alloc(Dtype::bf16, x.shape, groups_of_values(form));
    const Scope temps(c.temp);
    c.k.quantize_values(c.exec, y, x, largest_magnitudes(c, x, form.groups, division, {}), form);
    return y;
}

Tensor as_operand(Ctx& c, Tensor x, const Form& form, Tensor largest) {
    const bool values = is_given_as_values(c, x, form);
    const Tensor y = values ? c.temp.alloc(Dtype::bf16, x.shape, groups_of_values(form))
                            : c.temp.alloc(form.type, x.shape, form.groups);
    if (values)
        c.k.quantize_values(c.exec, y, x, largest, form);
    else
        c.k.quantize(c.exec, y, x, largest, form.rule, {});
    return y;
}

Tensor with_rounded_rows(Ctx& c, Tensor t) {
    if (t.cols() * size_of(t.dtype) > c.k.most_row_bytes) return t;
    const bool stays = c.tp.size() == 1;
    const Tensor rounded = is_given_as_values(c, t, rows_form) && stays
                               ? c.temp.alloc(Dtype::bf16, t.shape)
                               : c.temp.alloc(rows_form.type, t.shape, rows_form.groups);
    t.rounded = rounded.data;
    t.rounded_scale = rounded.scale;
    return t;
}

Tensor operand_of_tokens(Ctx& c, Tensor x, const Form& form, const Division& division) {
    if (x.rounded && form == rows_form) return rounded_rows(x);
    const bool stays = division.other_row_ranks.size() == 1 && !c.frame.is_owing();
    return stays ? as_operand(c, x, form, division) : in_form(c, x, form, division);
}

// Products on GPUs that multiply rows by rows would transpose the codes themselves.
bool multiplies_only_rows(const Ctx& c, const Form& form) {
    return (form.groups == ScaleGroups::one || form.groups == ScaleGroups::cols) && !c.exec.emulates_8_bits &&
           multiplies_rows_only(c.exec.architecture);
}

bool is_transposed_by_columns(const Ctx& c, const Form& form, const Division& division) {
    return multiplies_only_rows(c, form) && division.other_row_ranks.size() == 1;
}

Tensor write_transposed(Ctx& c, Tensor t, Tensor x, const Form& form, const Division& division, bool codes) {
    Tensor q;
    if (codes) {
        q = c.temp.alloc(form.type, x.shape);
        q.groups = ScaleGroups::one;
        q.scale = t.scale;
    }
    const Scope temps(c.temp);
    const Tensor bits = largest_magnitudes(c, x, form.groups, division, {});
    c.k.quantize_transposed(c.exec, t, q, x, bits, form.rule);
    return q;
}

namespace {

Tensor room_for_transposed(Ctx& c, Tensor x, const Form& form) {
    return c.temp.alloc(form.type, {x.cols(), x.rows()}, transposed(form).groups);
}

}  // namespace

Operand operand_by_columns(Ctx& c, Tensor x, const Form& form, const Division& division) {
    if (!is_transposed_by_columns(c, form, division)) return operand_of_tokens(c, x, form, division);
    const Tensor t = room_for_transposed(c, x, form);
    write_transposed(c, t, x, form, division, false);
    return transposed(t);
}

Operand operand_by_columns(Ctx& c, Tensor x, const Form& form, Tensor largest) {
    if (!multiplies_only_rows(c, form)) return as_operand(c, x, form, largest);
    const Tensor t = room_for_transposed(c, x, form);
    c.k.quantize_transposed(c.exec, t, {}, x, largest, form.rule);
    return transposed(t);
}

TwoOperands two_operands(Ctx& c, Tensor x, const Form& form, const Division& division) {
    if (form.groups == ScaleGroups::one && is_transposed_by_columns(c, form, division)) {
        const Tensor t = room_for_transposed(c, x, form), q = write_transposed(c, t, x, form, division, true);
        return {q, transposed(t)};
    }
    const Tensor operand = operand_of_tokens(c, x, form, division);
    return {operand, operand};
}

void copy_with_scales(Ctx& c, Tensor to, Tensor from, int64_t matrices) {
    c.k.cast(c.exec, to, from);
    c.k.cast(c.exec, scales_of(to, matrices), scales_of(from, matrices));
}

void multiply(Ctx& c, Tensor d, Operand a, Operand b, Tensor plus, bool fast) {
    const auto has_no_scales = [](const Operand& x) {
        return x.tensor.groups == ScaleGroups::none && !is_8_bit_float(x.tensor.dtype);
    };
    if (has_no_scales(a) && has_no_scales(b))
        c.k.gemm(c.exec, d, a, b, plus);
    else
        c.k.scaled_gemm(c.exec, d, a, b, plus, fast);
}

}  // namespace coeus
