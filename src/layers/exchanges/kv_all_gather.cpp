// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/exchanges/context_parallel.hpp"

namespace coeus {

// Gathers [T, W] of each rank into [P T, W] in temp, sequence after sequence.
Tensor AllGatherExchange::gather(Ctx& c, Tensor own, const AttentionTensors& t) const {
    const int64_t tokens = own.rows();
    const Tensor all = c.temp.alloc(own.dtype, {cp_.size() * tokens, own.cols()});
    const Scope temps(c.temp);
    const Tensor ranks = c.temp.alloc(all.dtype, all.shape),
                 mine = ranks.slice_rows(cp_.rank() * tokens, tokens);
    c.k.cast(c.exec, mine, own);
    {
        const ObservedExchange noted(c.exec, Exchange::gather_keys, ranks);
        cp_.all_gather(c.exec, ranks, mine);
    }
    to_sequences(c, all, ranks, t);
    return all;
}

// The transpose: sums gradients [P T, W] over the ranks; own [T, W].
void AllGatherExchange::scatter(Ctx& c, Tensor own, Tensor gradients, const AttentionTensors& t) const {
    const int64_t tokens = own.rows();
    const Scope temps(c.temp);
    const Tensor ranks = c.temp.alloc(gradients.dtype, gradients.shape),
                 mine = ranks.slice_rows(cp_.rank() * tokens, tokens);
    to_ranks(c, ranks, gradients, t);
    {
        const ObservedExchange noted(c.exec, Exchange::scatter_keys, ranks);
        cp_.reduce_scatter(c.exec, mine, ranks);
    }
    c.k.cast(c.exec, own, mine);
}

namespace {

// The shape for this rank's queries with the keys of all ranks.
AttentionShape over_all(const AttentionTensors& t, const SequencePart& queries, int ranks) {
    AttentionShape shape = t.shape;
    shape.query_part = queries;
    shape.key_part = {.count = t.shape.sequence * ranks};
    return shape;
}

}  // namespace

void AllGatherExchange::forward(Ctx& c, const AttentionTensors& t) const {
    const Scope temps(c.temp);
    const Tensor keys = gather(c, t.k, t), values = gather(c, t.v, t);
    c.k.attention(c.exec, t.out, t.lse, t.q, keys, values, c.batch.document_start,
                  over_all(t, part_of(cp_.rank(), t), cp_.size()));
    add_sinks(c, t.out, t.lse, t.sinks);
}

void AllGatherExchange::backward(Ctx& c, const AttentionTensors& t, Tensor dout) const {
    const Scope temps(c.temp);
    add_sinks_backward(c, t.dsinks, dout, t.out, t.lse, t.sinks);
    const Tensor keys = gather(c, t.k, t), values = gather(c, t.v, t);
    const Tensor dkeys = c.temp.alloc(t.lse.dtype, keys.shape),
                 dvalues = c.temp.alloc(t.lse.dtype, values.shape);
    c.k.attention_backward(c.exec, t.q, dkeys, dvalues, dout, t.out, t.lse, t.q, keys, values,
                           c.batch.document_start, over_all(t, part_of(cp_.rank(), t), cp_.size()), false);
    scatter(c, t.k, dkeys, t);
    scatter(c, t.v, dvalues, t);
}

}  // namespace coeus
