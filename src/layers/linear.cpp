// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/linear.hpp"

#include "coeus/layers/exchanges/sequence_parallel.hpp"

#include <algorithm>

namespace coeus {

namespace {

void add_bias(Ctx& c, Tensor y, const Storage* bias) {
    if (bias) c.k.add_bias(c.exec, y, bias->w);
}
void add_bias_backward(Ctx& c, Tensor dy, const Storage* bias) {
    if (bias && bias->trainable()) c.k.add_bias_backward(c.exec, bias->g, dy);
}

// The gradient of a part's outputs: for the input's gradient, and for the weight's, if they have the same
// form.
TwoOperands gradient_operands(Ctx& c, const WeightPart& part, Tensor dy, const Division& by) {
    const RecipeForms& forms = part.forms();
    if (forms.dy == forms.dy_of_wgrad && part.is_trained()) return two_operands(c, part.of(dy), forms.dy, by);
    return {operand_of_tokens(c, part.of(dy), forms.dy, by), {}};
}
// For the weight's gradient; nobody needs it if the weight is frozen.
Operand of_weight_gradient(Ctx& c, const WeightPart& part, Tensor dy, const TwoOperands& gradient,
                           const Division& by) {
    const RecipeForms& forms = part.forms();
    if (forms.dy == forms.dy_of_wgrad || !part.is_trained()) return gradient.by_columns;
    return operand_by_columns(c, part.of(dy), forms.dy_of_wgrad, by);
}

}  // namespace

// Parts with and without a recipe gather the input in their own forms.
Tensor ColLinear::forward(Ctx& c, Tensor x) const {
    const Tensor y = c.frame.keep(x.dtype, {x.rows() * c.tp.size(), weight_.rows()});
    const Scope temps(c.temp);
    const Division by = Division::tokens(c);
    const auto compute = [&](Tensor input, const RecipeForms& forms) {
        const Scope operands(c.temp);
        LinearWeight::OfParts<Tensor> w;
        const auto each_part = [&](const auto& f) {
            for (size_t i = 0; i < weight_.parts().size(); ++i)
                if (weight_.parts()[i].forms() == forms) f(weight_.parts()[i], w[i]);
        };
        each_part([&](const WeightPart& part, Tensor& operand) { operand = part.for_forward(c); });
        const int64_t columns = weight_.rows() / int64_t(weight_.parts().size());
        c.tokens.gather_parts(c, input, columns, [&](Tensor rows, int64_t first) {
            const Tensor some = y.slice_rows(first, rows.rows());
            each_part([&](const WeightPart& part, const Tensor& operand) {
                multiply(c, part.of(some), rows, transposed(operand), {}, true);
            });
        });
    };
    if (weight_.is_mixed()) {
        input_.keep(c, x, {}, by);
        compute(x, {});
        compute(operand_of_tokens(c, x, weight_.recipe_forms().x, by), weight_.recipe_forms());
    } else {
        compute(input_.take(c, x, weight_.forms(), by), weight_.forms());
    }
    add_bias(c, y, bias_);
    return y;
}

Operand ColLinear::recall_input(Ctx& c) const {
    const Operand x = input_.recall(c, weight_.forms(), Division::tokens(c));
    const bool is_needed = std::ranges::any_of(weight_.parts(), [&](const WeightPart& part) {
        return part.forms() == weight_.forms() && part.is_trained();
    });
    if (is_needed && !c.frame.is_owing()) c.tokens.begin_gather(c, x.tensor);
    return x;
}

Tensor ColLinear::backward(Ctx& c, Tensor dy) const {
    return backward(c, dy, recall_input(c));
}

Tensor ColLinear::backward(Ctx& c, Tensor dy, Operand x) const {
    add_bias_backward(c, dy, bias_);
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows() / c.tp.size(), weight_.cols()});
    const Scope temps(c.temp);
    const Division by = Division::columns_of_tokens(c);
    const std::vector<WeightPart>& parts = weight_.parts();
    LinearWeight::OfParts<Operand> w;
    LinearWeight::OfParts<TwoOperands> gradients;
    for (size_t i = 0; i < parts.size(); ++i) {
        gradients[i] = gradient_operands(c, parts[i], dy, by);
        w[i] = parts[i].for_input_gradient(c);
    }
    const auto compute = [&](Tensor rows, int64_t first) {
        for (size_t i = 0; i < parts.size(); ++i)
            multiply(c, rows, gradients[i].by_rows.slice_rows(first, rows.rows()), w[i],
                     i > 0 ? rows : Tensor{});
    };
    // x is gathered once for all parts with the same forms
    const auto request = [&](const RecipeForms& forms, const Operand& input) {
        WeightGradient gradient = {.x = input,
                                   .x_is_scattered = true,
                                   .x_is_lent = input_.is_lent(forms),
                                   .dy_is_lent = forms.dy_of_wgrad.is_8_bit()};
        const Scope of_parts(c.temp);
        for (size_t i = 0; i < parts.size(); ++i)
            if (parts[i].forms() == forms && parts[i].is_trained())
                gradient.parts.add({.storage = &parts[i].storage(),
                                    .dy = of_weight_gradient(c, parts[i], dy, gradients[i], by),
                                    .first_row = parts[i].first_row()});
        c.frame.later(c, gradient);
    };
    c.tokens.scatter(c, dx, compute, [&] { request(weight_.forms(), x); });
    if (weight_.is_mixed()) {
        const RecipeForms forms = weight_.recipe_forms();
        request(forms, operand_by_columns(c, x.tensor, forms.x_of_wgrad, Division::tokens(c)));
    }
    return dx;
}

Tensor TokenLinear::forward(Ctx& c, Tensor x, Dtype type, Tensor plus) const {
    const Tensor y = plus ? plus : c.frame.keep(type, {x.rows(), weight_.rows()});
    const Scope temps(c.temp);
    const Division by = Division::tokens(c);
    const Tensor taken = input_.take(c, x, weight_.forms(), by);
    for (const WeightPart& part : weight_.parts()) {
        const Scope operands(c.temp);
        const Tensor input = weight_.is_mixed() ? operand_of_tokens(c, x, part.forms().x, by) : taken,
                     w = part.for_forward(c).slice_cols(first_col_, cols_);
        multiply(c, part.of(y), input, transposed(w), plus ? part.of(plus) : plus, true);
    }
    add_bias(c, y, bias_);
    return y;
}

Tensor TokenLinear::backward(Ctx& c, Tensor dy) const {
    add_bias_backward(c, dy, bias_);
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows(), cols_});
    const Scope temps(c.temp);
    const Division by = Division::tokens(c);
    const Operand x = input_.recall(c, weight_.forms(), by);
    WeightGradient all = {.x = x, .first_col = first_col_, .x_is_lent = input_.is_lent(weight_.forms())};
    all.dy_is_lent = true;
    Tensor sum;
    for (const WeightPart& part : weight_.parts()) {
        const RecipeForms& forms = part.forms();
        const TwoOperands gradient = gradient_operands(c, part, dy, by);
        multiply(c, dx, gradient.by_rows, part.for_input_gradient(c).slice_cols(first_col_, cols_), sum);
        sum = dx;
        const WeightGradient::Part request = {.storage = &part.storage(),
                                              .dy = of_weight_gradient(c, part, dy, gradient, by),
                                              .first_row = part.first_row()};
        if (!weight_.is_mixed()) {
            all.parts.add(request);
            continue;
        }
        WeightGradient one = all;
        one.parts.add(request);
        one.x = operand_by_columns(c, x.tensor, forms.x_of_wgrad, by);
        one.x_is_lent = input_.is_lent(forms);
        c.frame.later(c, one);
    }
    if (!weight_.is_mixed()) c.frame.later(c, all);
    return dx;
}

Tensor RowLinear::forward(Ctx& c, Tensor x, Tensor residual) const {
    const int64_t own = x.rows() / c.tp.size();
    const Tensor y = c.frame.keep(x.dtype, {own, weight_.rows()});
    const Scope temps(c.temp);
    const Tensor input = input_.take(c, x, weight_.forms(), Division::columns_of_tokens(c)),
                 w = weight_.for_forward(c);
    // each rank adds the residual to its own rows: one product for the rows before them, one for them, one
    // for the rows after
    c.tokens.scatter(c, y, [&](Tensor rows, int64_t first) {
        const auto multiply_rows = [&](int64_t begin, int64_t end, Tensor plus) {
            if (begin < end)
                multiply(c, rows.slice_rows(begin, end - begin), input.slice_rows(first + begin, end - begin),
                         transposed(w), plus, true);
        };
        const int64_t all = rows.rows(), mine = c.tp.rank() * own - first,
                      begin = std::clamp<int64_t>(mine, 0, all),
                      end = std::clamp<int64_t>(mine + own, 0, all);
        multiply_rows(0, begin, {});
        multiply_rows(begin, end, residual);
        multiply_rows(end, all, {});
    });
    add_bias(c, y, bias_);
    return y;
}

void RowLinear::rebuild(Ctx& c, Tensor x) const {
    input_.keep(c, x, weight_.forms(), Division::columns_of_tokens(c));
}

Tensor RowLinear::backward(Ctx& c, Tensor dy) const {
    add_bias_backward(c, dy, bias_);
    const Tensor dx = c.temp.alloc(dy.dtype, {dy.rows() * c.tp.size(), weight_.storage().w.cols()});
    const Scope temps(c.temp);
    const Division by = Division::tokens(c);
    const RecipeForms& forms = weight_.forms();
    const Operand w = weight_.for_input_gradient(c);
    const TwoOperands gradient = gradient_operands(c, weight_, dy, by);
    const Tensor all = c.tokens.gather(c, gradient.by_rows, dx.cols(), [&](Tensor rows, int64_t first) {
        multiply(c, dx.slice_rows(first, rows.rows()), rows, w);
    });
    Operand of_weight = of_weight_gradient(c, weight_, dy, gradient, by);
    if (!of_weight.is_transposed)
        of_weight.tensor = forms.dy_of_wgrad == forms.dy || !weight_.is_trained()
                               ? all
                               : c.tokens.gather(c, of_weight.tensor);
    c.frame.later(c, {.parts = {&weight_.storage(), of_weight},
                      .x = input_.recall(c, forms, Division::columns_of_tokens(c)),
                      .x_is_lent = input_.is_lent(forms),
                      .dy_is_lent = true});
    return dx;
}

}  // namespace coeus
