// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/head_steps.hpp"

#include <algorithm>

namespace coeus {

namespace {

void copy_unless_same(Ctx& c, Tensor to, Tensor from) {
    if (to.data != from.data) c.k.cast(c.exec, to, from);
}

}  // namespace

void RotateHeads::forward(Ctx& c, Tensor to, Tensor from, Tensor /*measured*/) const {
    copy_unless_same(c, to, from);
    c.k.rope(c.exec, to, table_->view(), c.batch.positions, shape_, false);
}

void RotateHeads::backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor /*from*/, Tensor /*measured*/) const {
    copy_unless_same(c, dfrom, dto);
    c.k.rope(c.exec, dfrom, table_->view(), c.batch.positions, shape_, true);
}

// Calls each(weight, first column, number of columns) for the queries and for the keys, or once for both if
// the norm has no weight. `columns` of keys: 0 means the rest.
template <class Each>
void NormHeads::for_queries_and_keys(const Each& each) const {
    const int64_t q_cols = heads_ * head_dim_;
    if (!weights_[0]) return each(nullptr, int64_t(0), int64_t(0));
    each(weights_[0], int64_t(0), q_cols);
    each(weights_[1], q_cols, int64_t(0));
}

namespace {

Tensor columns(Tensor t, int64_t first, int64_t count) {
    return t.slice_cols(first, count > 0 ? count : t.cols() - first);
}

}  // namespace

void NormHeads::forward(Ctx& c, Tensor to, Tensor from, Tensor /*measured*/) const {
    for_queries_and_keys([&](const Storage* weight, int64_t first, int64_t count) {
        c.k.head_norm(c.exec, columns(to, first, count), columns(from, first, count),
                      weight ? weight->w : Tensor{}, head_dim_, form_);
    });
}

void NormHeads::backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from, Tensor /*measured*/) const {
    for_queries_and_keys([&](const Storage* weight, int64_t first, int64_t count) {
        c.k.head_norm_backward(c.exec, columns(dfrom, first, count),
                               weight && weight->trainable() ? weight->g : Tensor{},
                               columns(dto, first, count), columns(from, first, count),
                               weight ? weight->w : Tensor{}, head_dim_, form_);
    });
}

// Calls each(0 or 1, weight, first column, number of columns) for the queries and for the keys.
template <class Each>
void NormAllHeads::for_queries_and_keys(const Each& each) const {
    const int64_t of_queries = weights_[0]->w.count();
    each(0, *weights_[0], int64_t(0), of_queries);
    each(1, *weights_[1], of_queries, weights_[1]->w.count());
}

namespace {

// One number for each token, of queries or of keys.
Tensor row_of(Tensor measured, int64_t number) {
    return measured.slice_rows(number, 1).reshape({measured.cols()});
}
void sum_over_heads(Ctx& c, Tensor sums) {
    if (c.tp.size() == 1) return;
    const ObservedExchange noted(c.exec, Exchange::sum_over_heads, sums);
    c.tp.all_reduce(c.exec, sums);
}

}  // namespace

void NormAllHeads::measure(Ctx& c, Tensor measured, Tensor from) const {
    for_queries_and_keys([&](int64_t i, const Storage&, int64_t first, int64_t count) {
        const Tensor x = from.slice_cols(first, count);
        c.k.row_products(c.exec, row_of(measured, i), x, x, {}, 0);
    });
    sum_over_heads(c, measured);
}

void NormAllHeads::forward(Ctx& c, Tensor to, Tensor from, Tensor measured) const {
    for_queries_and_keys([&](int64_t i, const Storage& weight, int64_t first, int64_t count) {
        c.k.divided_norm(c.exec, to.slice_cols(first, count), from.slice_cols(first, count),
                         row_of(measured, i), weight.w, count * c.tp.size(), form_);
    });
}

void NormAllHeads::backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from, Tensor measured) const {
    const Scope temps(c.temp);
    const Tensor products = c.temp.alloc(measured.dtype, measured.shape);
    for_queries_and_keys([&](int64_t i, const Storage& weight, int64_t first, int64_t count) {
        c.k.row_products(c.exec, row_of(products, i), dto.slice_cols(first, count),
                         from.slice_cols(first, count), weight.w, form_.offset);
    });
    sum_over_heads(c, products);
    for_queries_and_keys([&](int64_t i, const Storage& weight, int64_t first, int64_t count) {
        c.k.divided_norm_backward(c.exec, dfrom.slice_cols(first, count),
                                  weight.trainable() ? weight.g : Tensor{}, dto.slice_cols(first, count),
                                  from.slice_cols(first, count), row_of(measured, i), row_of(products, i),
                                  weight.w, count * c.tp.size(), form_);
    });
}

void ScaleQueries::forward(Ctx& c, Tensor to, Tensor from, Tensor /*measured*/) const {
    copy_unless_same(c, to, from);
    c.k.scale_rows(c.exec, to.slice_cols(0, columns_), table_->view(), c.batch.positions);
}

void ScaleQueries::backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor /*from*/, Tensor measured) const {
    forward(c, dfrom, dto, measured);
}

bool HeadSteps::are_linear() const {
    return std::ranges::all_of(steps_, [](const auto& step) { return step->is_linear(); });
}

int64_t HeadSteps::measures() const {
    int64_t all = 0;
    for (const auto& step : steps_) all += step->measures();
    return all;
}

Tensor HeadSteps::room_for_measured(Ctx& c, Tensor input) const {
    return measures() > 0 ? c.frame.keep(acc_of(input.dtype), {measures(), input.rows()}) : Tensor{};
}

template <class Each>
void HeadSteps::for_each_step(Tensor measured, const Each& each) const {
    int64_t first = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
        const int64_t count = steps_[i]->measures();
        each(i, *steps_[i], count > 0 ? measured.slice_rows(first, count) : Tensor{});
        first += count;
    }
}

Tensor HeadSteps::forward(Ctx& c, Tensor input, Tensor measured) const {
    const Tensor result = are_linear() ? input : c.temp.alloc(input.dtype, {input.rows(), input.cols()});
    Tensor from = input;
    for_each_step(measured, [&](size_t, const HeadStep& step, Tensor of_step) {
        step.measure(c, of_step, from);
        step.forward(c, result, from, of_step);
        from = result;
    });
    return result;
}

HeadSteps::Backward::Backward(Ctx& c, const HeadSteps& steps, Tensor input, Tensor measured)
    : steps_(steps), input_(input), measured_(measured), result_(input) {
    require(steps.steps_.size() <= most, "a layer has at most four steps between projection and attention");
    if (steps.are_linear()) return;
    steps.for_each_step(measured, [&](size_t i, const HeadStep& step, Tensor of_step) {
        const Tensor from = result_;
        if (!step.is_linear()) from_[i] = from;
        // the input, and what a step that is not linear has got, must stay as they are
        if (from.data == input.data || !step.is_linear())
            result_ = c.temp.alloc(input.dtype, {input.rows(), input.cols()});
        step.forward(c, result_, from, of_step);
    });
}

void HeadSteps::Backward::finish(Ctx& c) const {
    Tensor gradient = result_, measured[most];
    steps_.for_each_step(measured_,
                         [&](size_t i, const HeadStep&, Tensor of_step) { measured[i] = of_step; });
    for (size_t i = steps_.steps_.size(); i-- > 0;) {
        const Tensor to = i == 0 ? input_ : from_[i] ? from_[i] : gradient;
        steps_.steps_[i]->backward(c, to, gradient, from_[i], measured[i]);
        gradient = to;
    }
}

}  // namespace coeus
