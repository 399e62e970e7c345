// SPDX-License-Identifier: Apache-2.0
// The weight of an assignment multiplies the activation of its expert (F wide) instead of the result (D
// wide). So the results are added as they are, and the weight's gradient needs no result:
//
//   rows = x by expert          gate_up = rows w13^T      act = weight gate(gate_up)     out = act w2^T
//   drows = dy by expert        dact = drows w2           dweight = dact . gate(gate_up)
//   y = residual + shared + the sum of the rows of out for each token, in ascending order of the experts
//
// If the weight belongs to the input (Llama 4), it multiplies gate_up instead, since that product is linear.
// If w2 has a bias, the weight multiplies the bias too.
#include "coeus/layers/moe.hpp"

#include "coeus/layers/sequence_parallel.hpp"

namespace coeus {

Tensor Router::logits(Ctx& c, Tensor x) const {
    return gate_.forward(c, x, acc_of(x.dtype));
}

Routed Router::choose(Ctx& c, Tensor logits) const {
    const Shape shape = {logits.rows(), options_.top_k};
    const Routed routed = {c.frame.keep(Dtype::i32, shape), c.frame.keep(logits.dtype, shape)};
    const Tensor loads = c.loads ? c.loads.slice_rows(row_, 1).reshape({c.loads.cols()}) : Tensor{};
    c.k.route(c.exec, routed.experts, routed.weights, loads, logits, bias_ ? bias_->w : Tensor{}, options_);
    c.frame.push(this, logits);
    c.frame.push(this, routed.experts);
    return routed;
}

Tensor Router::choose_backward(Ctx& c, Tensor dweights, Dtype type) const {
    const Tensor experts = c.frame.pop(this), logits = c.frame.pop(this);
    const Tensor dlogits = c.temp.alloc(type, logits.shape);
    const Scope temps(c.temp);
    const Tensor exact = type == logits.dtype ? dlogits : c.temp.alloc(logits.dtype, logits.shape);
    c.k.route_backward(c.exec, exact, dweights, logits, experts, options_);
    if (sequence_balance_ > 0) balance_sequences(c, exact, logits, experts);
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
void Router::balance_sequences(Ctx& c, Tensor dlogits, Tensor logits, Tensor experts) const {
    const SequenceRows rows = {.first = c.tp.rank() * logits.rows(), .length = c.batch.seq_len};
    const Scope temps(c.temp);
    const Tensor counts = c.temp.alloc(Dtype::i64, {c.batch.sequences, logits.cols()}),
                 losses = c.temp.alloc(logits.dtype, {logits.rows()});
    c.k.count_by_sequence(c.exec, counts, experts, rows);
    sum_choices(c, c.tp, Exchange::sum_token_choices, counts);
    sum_choices(c, c.cp, Exchange::sum_part_choices, counts);
    c.k.balance_sequences(c.exec, dlogits, losses, logits, counts, rows, sequence_balance_, options_,
                          c.scalars);
    c.k.sum(c.exec, &c.scalars.balance_loss, losses);
}

// The rows of a micro-batch by expert, all kept: slots i32[n, k], sources i32[rows], rows [rows, D], weights
// acc [rows], gate_up [rows, 2F/P].
struct Experts::Rows {
    Groups groups;
    Tensor slots, sources, rows, weights, gate_up;
};

namespace {

// The same elements as a matrix of one column.
Tensor column(Tensor t) {
    return t.reshape({t.count(), 1});
}

// [n, k] of this rank's tokens -> of all tokens.
Tensor gather_choices(Ctx& c, Tensor own) {
    return gather_tokens(c, own);
}

}  // namespace

Experts::Rows Experts::first_product(Ctx& c, Tensor x, const Routed& routed) const {
    const int64_t tokens = x.rows() * c.tp.size(), k = routed.experts.cols(), assignments = tokens * k,
                  count = grouped_rows(assignments, experts_);
    Rows r;
    r.groups = {.begins = c.frame.keep(Dtype::i32, {experts_}),
                .counts = c.frame.keep(Dtype::i32, {experts_}),
                .assignments = assignments};
    r.slots = c.frame.keep(Dtype::i32, {tokens, k});
    r.sources = c.frame.keep(Dtype::i32, {count});
    r.rows = c.frame.keep(x.dtype, {count, x.cols()});
    r.weights = c.frame.keep(routed.weights.dtype, {count});
    r.gate_up = c.frame.keep(x.dtype, {count, weights_.w13->w.rows() / experts_});
    const Scope temps(c.temp);
    const Tensor chosen = gather_choices(c, routed.experts), weights = gather_choices(c, routed.weights);
    c.k.group_by_expert(c.exec, r.slots, r.sources, r.groups, chosen);
    c.k.gather_rows(c.exec, column(r.weights), column(weights), r.sources, 1);
    c.k.gather_rows(c.exec, r.rows, gather_tokens(c, x), r.sources, k);
    c.k.grouped_gemm(c.exec, r.gate_up, r.rows, transposed(weights_.w13->w), r.groups);
    if (weights_.b13) c.k.add_group_bias(c.exec, r.gate_up, weights_.b13->w, {}, r.groups);
    for (const Tensor& tensor :
         {r.groups.begins, r.groups.counts, r.slots, r.sources, r.rows, r.weights, r.gate_up})
        c.frame.push(this, tensor);
    return r;
}

void Experts::rebuild(Ctx& c, Tensor x, const Routed& routed) const {
    first_product(c, x, routed);
}

void Experts::forward(Ctx& c, Tensor x, const Routed& routed, Tensor y) const {
    const Rows r = first_product(c, x, routed);
    const Scope temps(c.temp);
    const Tensor out = c.temp.alloc(x.dtype, r.rows.shape);
    {
        const Scope activation(c.temp);
        const Tensor act = c.temp.alloc(x.dtype, {r.rows.rows(), r.gate_up.cols() / 2});
        c.k.gate(c.exec, act, r.gate_up, r.weights, r.groups, gate_);
        c.k.grouped_gemm(c.exec, out, act, transposed(weights_.w2->w), r.groups);
    }
    // the ranks' results are added, so only one of them adds the bias
    if (weights_.b2 && c.tp.rank() == 0) c.k.add_group_bias(c.exec, out, weights_.b2->w, r.weights, r.groups);
    if (c.tp.size() == 1) return c.k.sum_rows(c.exec, y, y, out, r.slots);
    const Tensor parts = c.temp.alloc(x.dtype, {r.slots.rows(), x.cols()}),
                 own = c.temp.alloc(x.dtype, y.shape);
    c.k.sum_rows(c.exec, parts, {}, out, r.slots);
    scatter_tokens(c, own, parts);
    c.k.add(c.exec, y, own);
}

Experts::Gradients Experts::backward(Ctx& c, Tensor dy) const {
    Rows r;
    for (Tensor* tensor :
         {&r.gate_up, &r.weights, &r.rows, &r.sources, &r.slots, &r.groups.counts, &r.groups.begins})
        *tensor = c.frame.pop(this);
    r.groups.assignments = r.slots.count();
    const Dtype type = dy.dtype, acc = r.weights.dtype;
    const int64_t own = dy.rows(), k = r.slots.cols();
    const Gradients gradients = {c.temp.alloc(type, dy.shape), c.temp.alloc(acc, {own, k})};
    const Scope temps(c.temp);
    const Tensor dweights = c.temp.alloc(acc, {r.weights.count()});
    {
        const Scope second(c.temp);
        const Tensor drows = c.temp.alloc(type, r.rows.shape);
        c.k.gather_rows(c.exec, drows, gather_tokens(c, dy), r.sources, k);
        const Tensor act = c.temp.alloc(type, {r.rows.rows(), r.gate_up.cols() / 2}),
                     dact = c.temp.alloc(type, act.shape);
        c.k.grouped_gemm(c.exec, dact, drows, weights_.w2->w, r.groups);
        c.k.gate_backward(c.exec, r.gate_up, dweights, act, dact, r.gate_up, r.weights, r.groups, gate_);
        c.frame.later(c, {.storage = weights_.w2,
                          .x = act,
                          .dy = drows,
                          .groups = r.groups,
                          .x_is_lent = true,
                          .dy_is_lent = true});
        if (weights_.b2 && c.tp.rank() == 0) {
            const Tensor more = c.temp.alloc(acc, dweights.shape);
            const bool trained = weights_.b2->trainable();
            c.k.add_group_bias_backward(c.exec, trained ? weights_.b2->g : Tensor{}, more, drows,
                                        weights_.b2->w, r.weights, r.groups);
            c.k.add(c.exec, dweights, more);
        }
    }
    const Tensor drows = c.temp.alloc(type, r.rows.shape);
    c.k.grouped_gemm(c.exec, drows, r.gate_up, weights_.w13->w, r.groups);
    c.frame.later(c, {.storage = weights_.w13, .x = r.rows, .dy = r.gate_up, .groups = r.groups});
    if (weights_.b13 && weights_.b13->trainable())
        c.k.add_group_bias_backward(c.exec, weights_.b13->g, {}, r.gate_up, weights_.b13->w, {}, r.groups);
    const Tensor dx = parts_of(c, gradients.dx), dchosen = parts_of(c, gradients.dweights);
    c.k.sum_rows(c.exec, dx, {}, drows, r.slots);
    scatter_tokens(c, gradients.dx, dx);
    c.k.gather_rows(c.exec, column(dchosen), column(dweights), r.slots.reshape({r.slots.count()}), 1);
    scatter_tokens(c, gradients.dweights, dchosen);
    return gradients;
}

// What is pushed last is popped first: the experts, the choice, the shared experts, the gate. The input of
// the last two may be recomputed, for which nothing of this layer may be on top of the frame.
Tensor Moe::forward(Ctx& c, Tensor x, Tensor residual) const {
    const Tensor logits = router_.logits(c, x);
    Tensor y;
    if (shared_) {
        y = shared_->forward(c, x, residual);
    } else {
        y = c.frame.keep(x.dtype, x.shape);
        c.k.cast(c.exec, y, residual);
    }
    experts_.forward(c, x, router_.choose(c, logits), y);
    return y;
}

void Moe::rebuild(Ctx& c, Tensor x) const {
    const Tensor logits = router_.logits(c, x);
    if (shared_) shared_->rebuild(c, x);
    experts_.rebuild(c, x, router_.choose(c, logits));
}

Tensor Moe::backward(Ctx& c, Tensor dy) const {
    const Experts::Gradients gradients = experts_.backward(c, dy);
    const Tensor dx = gradients.dx;
    const Tensor dlogits = router_.choose_backward(c, gradients.dweights, dy.dtype);
    const auto add = [&](Tensor more) { c.k.add(c.exec, dx, more); };
    if (shared_) add(shared_->backward(c, dy));
    add(router_.logits_backward(c, dlogits));
    return dx;
}

}  // namespace coeus
