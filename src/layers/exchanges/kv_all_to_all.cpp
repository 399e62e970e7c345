// SPDX-License-Identifier: Apache-2.0
// HeadsExchange: each context-parallel rank gets all tokens of some heads, by an all-to-all before and after
// attention (Jacobs et al. 2023, DeepSpeed Ulysses).
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

// Whole sequences of a rank's heads, with which attention is computed as on a single rank.
struct OwnHeads {
    Tensor q, k, v, lse, sinks, dsinks;
    AttentionShape shape;

    /// `all` has q, k and v side by side. The lse for all tokens of this rank's heads is as large as that for
    /// this rank's tokens of all heads. It is kept in the memory of the latter and never exchanged.
    OwnHeads(Tensor all, const AttentionTensors& t, const Communicator& cp) : shape(t.shape) {
        const int64_t ranks = cp.size();
        require(t.shape.heads % ranks == 0 && t.shape.kv_heads % ranks == 0,
                "the number of heads must be a multiple of the context-parallel ranks");
        shape.sequence *= ranks;
        shape.heads /= ranks;
        shape.kv_heads /= ranks;
        const int64_t q_cols = shape.heads * shape.head_dim, k_cols = shape.kv_heads * shape.head_dim;
        q = all.slice_cols(0, q_cols);
        k = all.slice_cols(q_cols, k_cols);
        v = all.slice_cols(q_cols + k_cols, shape.kv_heads * shape.value_width());
        lse = t.lse.reshape({shape.heads, all.rows()});
        // other ranks add the gradients of the other heads' sinks
        if (t.sinks) sinks = t.sinks.slice_rows(cp.rank() * shape.heads, shape.heads);
        if (t.dsinks) dsinks = t.dsinks.slice_rows(cp.rank() * shape.heads, shape.heads);
    }
};

}  // namespace

void HeadsExchange::forward(Ctx& c, const AttentionTensors& t) const {
    const Scope temps(c.temp);
    const Tensor all = to_heads(c, {t.q, t.k, t.v}, t);
    const OwnHeads own(all, t, cp_);
    const Tensor out = c.temp.alloc(t.out.dtype, {all.rows(), own.shape.heads * own.shape.value_width()});
    c.k.attention(c.exec, out, own.lse, own.q, own.k, own.v, c.batch.document_start, own.shape);
    add_sinks(c, out, own.lse, own.sinks);
    to_tokens(c, {t.out}, out, t);
}

void HeadsExchange::backward(Ctx& c, const AttentionTensors& t, Tensor dout) const {
    const Scope temps(c.temp);
    const Tensor all = to_heads(c, {t.q, t.k, t.v, t.out, dout}, t);
    const OwnHeads own(all, t, cp_);
    const int64_t out_cols = own.shape.heads * own.shape.value_width(), qkv_cols = all.cols() - 2 * out_cols;
    const Tensor out = all.slice_cols(qkv_cols, out_cols),
                 down = all.slice_cols(qkv_cols + out_cols, out_cols);
    add_sinks_backward(c, own.dsinks, down, out, own.lse, own.sinks);
    c.k.attention_backward(c.exec, own.q, own.k, own.v, down, out, own.lse, own.q, own.k, own.v,
                           c.batch.document_start, own.shape, false);
    to_tokens(c, {t.q, t.k, t.v}, all.slice_cols(0, qkv_cols), t);
}

}  // namespace coeus
