// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/recompute.hpp"

namespace coeus {

Tensor allocate(Ctx& c, Output output, Dtype dtype, const Shape& shape) {
    const auto room = [&](Dtype type, const Shape& s) {
        return output.place == Output::kept ? c.frame.keep(type, s) : c.temp.alloc(type, s);
    };
    const Tensor y = room(dtype, shape);
    return output.with_largest ? with_largest(c, y, room(Dtype::i32, {1})) : y;
}

Tensor LinearInput::keep_in_8_bits(Ctx& c, Tensor x, const Form& form, const Division& division) const {
    require(form.is_8_bit(), "an input is kept in 8 bits, but its weight's gradient needs the compute type");
    const Tensor q = c.frame.keep(form.type, x.shape, form.groups);
    quantize_to(c, q, x, form, division);
    c.frame.push(this, q);
    return q;
}

Tensor LinearInput::take(Ctx& c, Tensor x, const RecipeForms& forms, const Division& division) const {
    if (place_ == Output::kept_in_8_bits && forms.x == forms.x_of_wgrad && c.frame.has_backward())
        return keep_in_8_bits(c, x, forms.x, division);
    keep(c, x, forms, division);
    return operand_of_tokens(c, x, forms.x, division);
}

void LinearInput::keep(Ctx& c, Tensor x, const RecipeForms& forms, const Division& division) const {
    if (!c.frame.has_backward()) return;
    if (place_ == Output::kept_in_8_bits) keep_in_8_bits(c, x, forms.x_of_wgrad, division);
    if (place_ == Output::kept) c.frame.push(this, x);
}

Tensor LinearInput::recall(Ctx& c, const RecipeForms& forms, const Division& division) const {
    if (place_ == Output::kept_in_8_bits) return c.frame.pop(this);
    return operand_of_tokens(c, source_ ? source_->again(c) : c.frame.pop(this), forms.x_of_wgrad, division);
}

}  // namespace coeus
