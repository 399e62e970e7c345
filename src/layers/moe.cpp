// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/moe.hpp"

namespace coeus {

Tensor Router::logits(Ctx& c, Tensor x) const {
    return gate_.forward(c, x, acc_of(x.dtype));
}

Router::Choice Router::choose(Ctx& c, Tensor logits) const {
    const Shape shape = {logits.rows(), options_.top_k};
    const Choice choice = {{c.frame.keep(Dtype::i32, shape), c.frame.keep(logits.dtype, shape)}, logits};
    const Tensor loads = c.counts ? c.counts.slice_rows(row_, 1).reshape({c.counts.cols()}) : Tensor{};
    c.k.route(c.exec, choice.experts, choice.weights, loads, logits, bias_ ? bias_->w : Tensor{}, options_);
    return choice;
}

void Router::push(Ctx& c, const Choice& choice) const {
    c.frame.push(this, choice.logits);
    c.frame.push(this, choice.experts);
}

Router::Choice Router::pop(Ctx& c) const {
    Choice choice;
    choice.experts = c.frame.pop(this);
    choice.logits = c.frame.pop(this);
    return choice;
}

Tensor Router::choose_backward(Ctx& c, const Choice& choice, Tensor dweights, Dtype type) const {
    const Tensor logits = choice.logits, dlogits = c.temp.alloc(type, logits.shape);
    const Scope temps(c.temp);
    const Tensor exact = type == logits.dtype ? dlogits : c.temp.alloc(logits.dtype, logits.shape);
    c.k.route_backward(c.exec, exact, dweights, logits, choice.experts, options_);
    if (balance_.coefficient > 0) balance_sequences(c, exact, choice);
    if (type != logits.dtype) c.k.cast(c.exec, dlogits, exact);
    return dlogits;
}

namespace {

void sum_choices(Ctx& c, const Communicator& ranks, Exchange exchange, Tensor counts) {
    if (ranks.size() == 1) return;
    const ObservedExchange noted(c.exec, exchange, counts);
    ranks.all_reduce(c.exec, counts);
}

}  // namespace

// The loss of a sequence of T tokens is alpha sum_e f_e P_e, with P_e the mean over its tokens of p_e. It
// weighs as much as T labels, so a token adds alpha sum_e f_e p_e. The value is computed here because no
// forward needs it: the backward runs once, whatever is recomputed, and only in training.
void Router::balance_sequences(Ctx& c, Tensor dlogits, const Choice& choice) const {
    const Tensor logits = choice.logits;
    const SequenceRows rows = {.first = c.tp.rank() * logits.rows(), .length = c.batch.seq_len};
    const Scope temps(c.temp);
    const Tensor counts = c.temp.alloc(Dtype::i64, {c.batch.sequences, logits.cols()}),
                 losses = c.temp.alloc(logits.dtype, {logits.rows()});
    c.k.count_by_sequence(c.exec, counts, choice.experts, rows);
    sum_choices(c, c.tp, Exchange::sum_token_choices, counts);
    sum_choices(c, c.cp, Exchange::sum_part_choices, counts);
    c.k.balance_sequences(c.exec, dlogits, losses, logits, counts, rows, balance_.coefficient, options_,
                          c.scalars);
    c.k.sum(c.exec, &c.scalars.losses[balance_.part], losses);
}

// What is pushed last is popped first: the experts, the choice, the shared experts, the gate. The input of
// the last two may be recomputed, for which nothing of this layer may be on top of the frame.
Tensor Moe::forward(Ctx& c, Tensor x, Tensor residual) const {
    const Router::Choice choice = router_.choose(c, router_.logits(c, x));
    return experts_->forward(c, x, choice, [&] {
        Tensor y;
        if (shared_) {
            y = shared_->forward(c, x, residual);
        } else {
            y = c.frame.keep(x.dtype, x.shape);
            if (residual)
                c.k.cast(c.exec, y, residual);
            else
                c.k.zero(c.exec, y);
        }
        router_.push(c, choice);
        return y;
    });
}

void Moe::rebuild(Ctx& c, Tensor x) const {
    const Router::Choice choice = router_.choose(c, router_.logits(c, x));
    experts_->rebuild(c, x, choice, [&] {
        if (shared_) shared_->rebuild(c, x);
        router_.push(c, choice);
    });
}

Tensor Moe::backward(Ctx& c, Tensor dy) const {
    const Tensor dx = c.temp.alloc(dy.dtype, dy.shape);
    Router::Choice choice;
    const Tensor dweights = experts_->backward(c, dy, dx, [&]() -> Tensor {
        choice = router_.pop(c);
        if (!shared_) return {};
        const Scope temps(c.temp);
        c.k.cast(c.exec, dx, shared_->backward(c, dy));
        return dx;
    });
    c.k.add(c.exec, dx, router_.logits_backward(c, router_.choose_backward(c, choice, dweights, dy.dtype)));
    return dx;
}

}  // namespace coeus
