// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/attention.hpp"

#include <cmath>

namespace coeus {

AttentionTensors Attention::tensors(const Batch& batch, Tensor queries_and_keys, Tensor values, Tensor out,
                                    Tensor lse) const {
    return {.layer = heads_.layer,
            .out = out,
            .lse = lse,
            .q = queries_and_keys.slice_cols(0, heads_.query_cols()),
            .k = queries_and_keys.slice_cols(heads_.query_cols(), heads_.key_cols()),
            .v = values,
            .shape = {.batch = batch.sequences,
                      .sequence = batch.seq_len,
                      .heads = heads_.heads,
                      .kv_heads = heads_.kv_heads,
                      .head_dim = heads_.head_dim,
                      .scale = heads_.scale > 0 ? heads_.scale : 1 / std::sqrt(double(heads_.head_dim)),
                      .value_dim = heads_.value_dim,
                      .window = heads_.window,
                      .chunk = heads_.chunk},
            .sinks = sinks_ ? sinks_->w : Tensor{},
            .dsinks = sinks_ && sinks_->trainable() ? sinks_->g : Tensor{}};
}

namespace {

// The columns of queries and keys, and those of values.
struct Parts {
    Tensor queries_and_keys, values;
    Parts(Tensor qkv, const AttentionHeads& heads) {
        const int64_t cols = heads.query_cols() + heads.key_cols();
        queries_and_keys = qkv.slice_cols(0, cols);
        values = qkv.slice_cols(cols, heads.value_cols());
    }
};

}  // namespace

// Everything except the last product: [T/P, D] -> [T, H e], kept.
Tensor Attention::attend(Ctx& c, Tensor x) const {
    const Tensor qkv = wqkv_.forward(c, x);
    const Tensor out = c.frame.keep(x.dtype, {qkv.rows(), heads_.heads * heads_.value_width()});
    const Tensor lse = c.frame.keep(acc_of(x.dtype), {heads_.heads, qkv.rows()});
    const Tensor measured = steps_.room_for_measured(c, qkv);
    {
        const Scope temps(c.temp);
        const Parts parts(qkv, heads_);
        const Tensor result = steps_.forward(c, parts.queries_and_keys, measured);
        c.kv.forward(c, tensors(c.batch, result, parts.values, out, lse));
    }
    if (measured) c.frame.push(this, measured);
    c.frame.push(this, qkv);
    c.frame.push(this, out);
    c.frame.push(this, lse);
    return out;
}

Tensor Attention::forward(Ctx& c, Tensor x, Tensor residual) const {
    return wo_.forward(c, attend(c, x), residual);
}

void Attention::rebuild(Ctx& c, Tensor x) const {
    wo_.rebuild(c, attend(c, x));
}

Tensor Attention::backward(Ctx& c, Tensor dy) const {
    const Tensor dout = wo_.backward(c, dy);
    const Tensor lse = c.frame.pop(this), out = c.frame.pop(this), qkv = c.frame.pop(this),
                 measured = steps_.measures() > 0 ? c.frame.pop(this) : Tensor{};
    const Operand x = wqkv_.recall_input(c);
    {
        const Scope temps(c.temp);
        const Parts parts(qkv, heads_);
        const HeadSteps::Backward steps(c, steps_, parts.queries_and_keys, measured);
        // the gradients overwrite queries, keys and values
        c.kv.backward(c, tensors(c.batch, steps.result(), parts.values, out, lse), dout);
        steps.finish(c);
    }
    return wqkv_.backward(c, qkv, x);
}

}  // namespace coeus
