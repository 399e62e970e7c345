// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/shared_expert.hpp"

#include "coeus/layers/exchanges/sequence_parallel.hpp"

namespace coeus {

Tensor WeightedUnit::forward(Ctx& c, Tensor gate_up, Tensor weights) const {
    const Tensor y = allocate(c, output_, gate_up.dtype, {gate_up.rows(), gate_up.cols() / 2});
    c.k.gate(c.exec, y, gate_up, weights.reshape({weights.count()}), {}, gate_);
    c.frame.push(this, gate_up);
    c.frame.push(this, weights);
    return y;
}

Tensor WeightedUnit::again(Ctx& c) const {
    const Tensor weights = c.frame.pop(this), gate_up = c.frame.pop(this);
    return forward(c, gate_up, weights);
}

Tensor WeightedUnit::backward(Ctx& c, Tensor dweights, Tensor dy) const {
    const Tensor weights = c.frame.pop(this), gate_up = c.frame.pop(this);
    c.k.gate_backward(c.exec, gate_up, dweights.reshape({dweights.count()}), {}, dy, gate_up,
                      weights.reshape({weights.count()}), {}, gate_);
    return gate_up;
}

namespace {

// The gate is a router with one expert: the weight of this expert is the sigmoid of its logit.
constexpr RouteOptions one_expert = {.top_k = 1, .sigmoid = true};

}  // namespace

// What is pushed last is popped first: w2, the unit, the logits, w13, the gate. The input of the last two may
// be recomputed, for which nothing of this layer may be on top of the frame.
Tensor SharedExpert::activated(Ctx& c, Tensor x) const {
    const Tensor logits = gate_.forward(c, x, acc_of(x.dtype));
    const Tensor gate_up = w13_.forward(c, x);
    c.frame.push(this, logits);
    const Tensor all = c.frame.keep(logits.dtype, {gate_up.rows(), 1});
    {
        const Scope temps(c.temp);
        const Tensor experts = c.temp.alloc(Dtype::i32, logits.shape),
                     own = c.tp.size() == 1 ? all : c.temp.alloc(logits.dtype, logits.shape);
        c.k.route(c.exec, experts, own, {}, logits, {}, one_expert);
        if (c.tp.size() > 1) c.k.cast(c.exec, all, gather_tokens(c, own));
    }
    return unit_->forward(c, gate_up, all);
}

Tensor SharedExpert::forward(Ctx& c, Tensor x, Tensor residual) const {
    return w2_.forward(c, activated(c, x), residual);
}

void SharedExpert::rebuild(Ctx& c, Tensor x) const {
    w2_.rebuild(c, activated(c, x));
}

Tensor SharedExpert::backward(Ctx& c, Tensor dy) const {
    const Tensor dactivated = w2_.backward(c, dy), dlogits = c.temp.alloc(dy.dtype, {dy.rows(), 1});
    Tensor dgate_up;
    {
        const Scope temps(c.temp);
        const Dtype acc = acc_of(dy.dtype);
        const Tensor own = c.temp.alloc(acc, dlogits.shape), parts = parts_of(c, own);
        dgate_up = unit_->backward(c, parts, dactivated);
        scatter_tokens(c, own, parts);
        const Tensor logits = c.frame.pop(this), experts = c.temp.alloc(Dtype::i32, logits.shape),
                     exact = c.temp.alloc(acc, dlogits.shape);
        c.k.zero(c.exec, experts);
        c.k.route_backward(c.exec, exact, own, logits, experts, one_expert);
        c.k.cast(c.exec, dlogits, exact);
    }
    const Tensor dx = w13_.backward(c, dgate_up);
    c.k.add(c.exec, dx, gate_.backward(c, dlogits));
    return dx;
}

}  // namespace coeus
