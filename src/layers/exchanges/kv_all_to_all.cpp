// SPDX-License-Identifier: Apache-2.0
// HeadsExchange: each context-parallel rank gets all tokens of some heads, by an all-to-all before and after
// attention (Jacobs et al. 2023, DeepSpeed Ulysses). OwnHeadsExchange: each has all tokens, but only some
// heads.
#include "coeus/layers/exchanges/context_parallel.hpp"

namespace coeus {

namespace {

int64_t total_cols(std::initializer_list<Tensor> tensors) {
    int64_t cols = 0;
    for (const Tensor& tensor : tensors) cols += tensor.cols();
    return cols;
}

}  // namespace

// Exchanges this rank's tokens of all heads, tensors [T, W], for all tokens of this rank's heads, [P T, sum
// of W / P] in temp: the tensors side by side, sequence after sequence.
Tensor HeadsExchange::to_heads(Ctx& c, std::initializer_list<Tensor> tensors,
                               const AttentionTensors& t) const {
    const int64_t tokens = t.q.rows(), ranks = cp_.size();
    const Tensor all = c.temp.alloc(t.q.dtype, {ranks * tokens, total_cols(tensors) / ranks});
    const Scope temps(c.temp);
    const Tensor sent = c.temp.alloc(all.dtype, all.shape), received = c.temp.alloc(all.dtype, all.shape);
    for (int64_t rank = 0; rank < ranks; ++rank) {
        int64_t first = 0;
        for (const Tensor& tensor : tensors) {
            const int64_t cols = tensor.cols() / ranks;
            c.k.cast(c.exec, sent.slice_rows(rank * tokens, tokens).slice_cols(first, cols),
                     tensor.slice_cols(rank * cols, cols));
            first += cols;
        }
    }
    {
        const ObservedExchange noted(c.exec, Exchange::tokens_to_heads, sent);
        cp_.all_to_all(c.exec, received, sent);
    }
    to_sequences(c, all, received, t);
    return all;
}

// The inverse of to_heads.
void HeadsExchange::to_tokens(Ctx& c, std::initializer_list<Tensor> tensors, Tensor all,
                              const AttentionTensors& t) const {
    const int64_t tokens = t.q.rows(), ranks = cp_.size();
    const Scope temps(c.temp);
    const Tensor sent = c.temp.alloc(all.dtype, all.shape), received = c.temp.alloc(all.dtype, all.shape);
    to_ranks(c, sent, all, t);
    {
        const ObservedExchange noted(c.exec, Exchange::heads_to_tokens, sent);
        cp_.all_to_all(c.exec, received, sent);
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
        int64_t first = 0;
        for (const Tensor& tensor : tensors) {
            const int64_t cols = tensor.cols() / ranks;
            c.k.cast(c.exec, tensor.slice_cols(rank * cols, cols),
                     received.slice_rows(rank * tokens, tokens).slice_cols(first, cols));
            first += cols;
        }
    }
}

namespace {

// The shape and the sinks of attention with this rank's heads; the other tensors are not set.
AttentionTensors own_heads(const AttentionTensors& t, const Communicator& cp) {
    const int64_t ranks = cp.size();
    require(t.shape.heads % ranks == 0 && t.shape.kv_heads % ranks == 0,
            "the number of heads must be a multiple of the context-parallel ranks");
    AttentionTensors own = {.layer = t.layer, .shape = t.shape};
    own.shape.heads /= ranks;
    own.shape.kv_heads /= ranks;
    // other ranks add the gradients of the other heads' sinks
    if (t.sinks) own.sinks = t.sinks.slice_rows(cp.rank() * own.shape.heads, own.shape.heads);
    if (t.dsinks) own.dsinks = t.dsinks.slice_rows(cp.rank() * own.shape.heads, own.shape.heads);
    return own;
}

// Whole sequences of a rank's heads, with which attention is computed as on a single rank; without out.
// `all` has q, k and v side by side. The lse for all tokens of this rank's heads is as large as that for
// this rank's tokens of all heads. It is kept in the memory of the latter and never exchanged.
AttentionTensors whole_sequences(Tensor all, const AttentionTensors& t, const Communicator& cp) {
    AttentionTensors own = own_heads(t, cp);
    own.shape.sequence *= cp.size();
    const int64_t q_cols = own.shape.heads * own.shape.head_dim,
                  k_cols = own.shape.kv_heads * own.shape.head_dim;
    own.q = all.slice_cols(0, q_cols);
    own.k = all.slice_cols(q_cols, k_cols);
    own.v = all.slice_cols(q_cols + k_cols, own.shape.kv_heads * own.shape.value_width());
    own.lse = t.lse.reshape({own.shape.heads, all.rows()});
    return own;
}

int64_t out_cols(const AttentionTensors& t) {
    return t.shape.heads * t.shape.value_width();
}

}  // namespace

void HeadsExchange::forward(Ctx& c, const AttentionTensors& t) const {
    if (cp_.size() == 1) return of_heads_.forward(c, t);
    const Scope temps(c.temp);
    const Tensor all = to_heads(c, {t.q, t.k, t.v}, t);
    AttentionTensors own = whole_sequences(all, t, cp_);
    own.out = c.temp.alloc(t.out.dtype, {all.rows(), out_cols(own)});
    of_heads_.forward(c, own);
    to_tokens(c, {t.out}, own.out, t);
}

void HeadsExchange::backward(Ctx& c, const AttentionTensors& t, Tensor dout) const {
    const Scope temps(c.temp);
    const Tensor all = to_heads(c, {t.q, t.k, t.v, t.out, dout}, t);
    const AttentionTensors own = whole_sequences(all, t, cp_);
    const int64_t width = out_cols(own), qkv_cols = all.cols() - 2 * width;
    const Tensor out = all.slice_cols(qkv_cols, width), down = all.slice_cols(qkv_cols + width, width);
    add_sinks_backward(c, own.dsinks, down, out, own.lse, own.sinks);
    c.k.attention_backward(c.exec, own.q, own.k, own.v, down, out, own.lse, own.q, own.k, own.v,
                           c.batch.document_start, own.shape, false);
    to_tokens(c, {t.q, t.k, t.v}, all.slice_cols(0, qkv_cols), t);
}

void OwnHeadsExchange::forward(Ctx& c, const AttentionTensors& t) const {
    const int64_t ranks = cp_.size(), tokens = t.q.rows();
    if (ranks == 1) return of_heads_.forward(c, t);
    const Scope temps(c.temp);
    AttentionTensors own = own_heads(t, cp_);
    const auto part = [&](Tensor all) {
        return all.slice_cols(cp_.rank() * (all.cols() / ranks), all.cols() / ranks);
    };
    own.q = part(t.q);
    own.k = part(t.k);
    own.v = part(t.v);
    own.lse = t.lse.slice_rows(cp_.rank() * own.shape.heads, own.shape.heads);
    const Tensor of_ranks = c.temp.alloc(t.out.dtype, {ranks * tokens, out_cols(own)});
    own.out = of_ranks.slice_rows(cp_.rank() * tokens, tokens);
    of_heads_.forward(c, own);
    {
        const ObservedExchange noted(c.exec, Exchange::heads_to_tokens, of_ranks);
        cp_.all_gather(c.exec, of_ranks, own.out);
    }
    for (int64_t rank = 0; rank < ranks; ++rank)
        c.k.cast(c.exec, t.out.slice_cols(rank * out_cols(own), out_cols(own)),
                 of_ranks.slice_rows(rank * tokens, tokens));
}

}  // namespace coeus
