// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/head_steps.hpp"

#include <algorithm>

namespace coeus {

namespace {

void copy_unless_same(Ctx& c, Tensor to, Tensor from) {
    if (to.data != from.data) c.k.cast(c.exec, to, from);
}

}  // namespace

void RotateHeads::forward(Ctx& c, Tensor to, Tensor from) const {
    copy_unless_same(c, to, from);
    c.k.rope(c.exec, to, table_->view(), c.batch.positions, shape_, false);
}

void RotateHeads::backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor /*from*/) const {
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

void NormHeads::forward(Ctx& c, Tensor to, Tensor from) const {
    for_queries_and_keys([&](const Storage* weight, int64_t first, int64_t count) {
        c.k.head_norm(c.exec, columns(to, first, count), columns(from, first, count),
                      weight ? weight->w : Tensor{}, head_dim_, eps_);
    });
}

void NormHeads::backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor from) const {
    for_queries_and_keys([&](const Storage* weight, int64_t first, int64_t count) {
        c.k.head_norm_backward(c.exec, columns(dfrom, first, count),
                               weight && weight->trainable() ? weight->g : Tensor{},
                               columns(dto, first, count), columns(from, first, count),
                               weight ? weight->w : Tensor{}, head_dim_, eps_);
    });
}

void ScaleQueries::forward(Ctx& c, Tensor to, Tensor from) const {
    copy_unless_same(c, to, from);
    c.k.scale_rows(c.exec, to.slice_cols(0, columns_), table_->view(), c.batch.positions);
}

void ScaleQueries::backward(Ctx& c, Tensor dfrom, Tensor dto, Tensor /*from*/) const {
    forward(c, dfrom, dto);
}

bool HeadSteps::are_linear() const {
    return std::ranges::all_of(steps_, [](const auto& step) { return step->is_linear(); });
}

Tensor HeadSteps::forward(Ctx& c, Tensor input) const {
    const Tensor result = are_linear() ? input : c.temp.alloc(input.dtype, {input.rows(), input.cols()});
    Tensor from = input;
    for (const auto& step : steps_) {
        step->forward(c, result, from);
        from = result;
    }
    return result;
}

HeadSteps::Backward::Backward(Ctx& c, const HeadSteps& steps, Tensor input)
    : steps_(steps), input_(input), result_(input) {
    require(steps.steps_.size() <= most, "a layer has at most four steps between projection and attention");
    if (steps.are_linear()) return;
    for (size_t i = 0; i < steps.steps_.size(); ++i) {
        const HeadStep& step = *steps.steps_[i];
        const Tensor from = result_;
        if (!step.is_linear()) from_[i] = from;
        // the input, and what a step that is not linear has got, must stay as they are
        if (from.data == input.data || !step.is_linear())
            result_ = c.temp.alloc(input.dtype, {input.rows(), input.cols()});
        step.forward(c, result_, from);
    }
}

void HeadSteps::Backward::finish(Ctx& c) const {
    Tensor gradient = result_;
    for (size_t i = steps_.steps_.size(); i-- > 0;) {
        const Tensor to = i == 0 ? input_ : from_[i] ? from_[i] : gradient;
        steps_.steps_[i]->backward(c, to, gradient, from_[i]);
        gradient = to;
    }
}

}  // namespace coeus
