// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/recompute.hpp"

namespace coeus {

namespace {

Tensor room(Ctx& c, Output::Place place, Dtype type, const Shape& shape) {
    return place == Output::kept ? c.frame.keep(type, shape) : c.temp.alloc(type, shape);
}

}  // namespace

Tensor allocate(Ctx& c, Output output, Dtype dtype, const Shape& shape) {
    return with_groups(c, room(c, output.place, dtype, shape), output.of_product, output.place);
}

Tensor with_groups(Ctx& c, Tensor t, ScaleGroups groups, Output::Place place, int64_t parts) {
    switch (groups) {
        case ScaleGroups::one: return with_largest(c, t, room(c, place, Dtype::i32, {parts}));
        case ScaleGroups::rows: return with_rounded_rows(c, t);
        default: return t;
    }
}

Tensor LinearInput::keep_in_8_bits(Ctx& c, Tensor x, const Form& form, const Division& division,
                                   bool needs_codes) const {
    require(form.is_8_bit(), "an input is kept in 8 bits, but its weight's gradient needs the compute type");
    if (is_transposed_by_columns(c, form, division)) {
        const Tensor t = c.frame.keep(form.type, {x.cols(), x.rows()}, transposed(form).groups);
        c.frame.push(this, t);
        return write_transposed(c, t, x, form, division, needs_codes);
    }
    const Tensor q = c.frame.keep(form.type, x.shape, form.groups);
    write_in_form(c, q, x, form, division);
    c.frame.push(this, q);
    return q;
}

Tensor LinearInput::take(Ctx& c, Tensor x, const RecipeForms& forms, const Division& division) const {
    // recall() need not read it once more
    const bool keeps_largest = place_ == Output::kept && c.frame.has_backward() && !x.has_largest() &&
                               forms.x.groups == ScaleGroups::one &&
                               forms.x_of_wgrad.groups == ScaleGroups::one;
    if (keeps_largest) {
        const Tensor bits = c.frame.keep(Dtype::i32, {1});
        x = with_largest(c, x, bits);
        c.k.largest_magnitudes(c.exec, bits, x, ScaleGroups::one, {});
    }
    if (place_ == Output::kept_in_8_bits && forms.x == forms.x_of_wgrad && c.frame.has_backward())
        return keep_in_8_bits(c, x, forms.x, division, true);
    keep(c, x, forms, division);
    return operand_of_tokens(c, x, forms.x, division);
}

void LinearInput::keep(Ctx& c, Tensor x, const RecipeForms& forms, const Division& division) const {
    if (!c.frame.has_backward()) return;
    if (place_ == Output::kept_in_8_bits) keep_in_8_bits(c, x, forms.x_of_wgrad, division, false);
    x.rounded = nullptr;  // which ends with the forward
    if (place_ == Output::kept) c.frame.push(this, x);
}

Operand LinearInput::recall(Ctx& c, const RecipeForms& forms, const Division& division) const {
    const Form& form = forms.x_of_wgrad;
    if (place_ == Output::kept_in_8_bits)
        return {c.frame.pop(this), is_transposed_by_columns(c, form, division)};
    return operand_by_columns(c, source_ ? source_->again(c) : c.frame.pop(this), form, division);
}

}  // namespace coeus
