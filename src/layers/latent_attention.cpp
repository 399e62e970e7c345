// SPDX-License-Identifier: Apache-2.0
// P tensor-parallel ranks make the latents of their own T/P tokens. The products that follow gather them:
//
//   down [T/P, q_rank + kv_rank + rope]    of the input, kept
//   q    [T, H (nope + rope)]              of the norm of the queries' latents
//   kv   [T, H (nope + value)]             of the norm of the latents of keys and values
//   pe   [T, rope]                         gathered and rotated
//   k, v                                   of kv and pe, in temp; the backward lays them out again
#include "coeus/layers/latent_attention.hpp"

#include "coeus/layers/exchanges/sequence_parallel.hpp"

namespace coeus {

namespace {

// The columns of the first product.
struct Latents {
    Tensor q, kv, pe;
    Latents(Tensor down, const LatentHeads& heads)
        : kv(down.slice_cols(heads.q_rank, heads.kv_rank)),
          pe(down.slice_cols(heads.q_rank + heads.kv_rank, heads.shape.rope)) {
        if (heads.q_rank > 0) q = down.slice_cols(0, heads.q_rank);
    }
};

// The norm of latents, kept for the weight gradient of the product that follows.
Tensor normed(Ctx& c, Tensor latent, const Storage& weight, const NormForm& form) {
    const Tensor y = c.frame.keep(latent.dtype, {latent.rows(), latent.cols()});
    c.k.head_norm(c.exec, y, latent, weight.w, latent.cols(), form);
    return y;
}
void normed_backward(Ctx& c, Tensor dlatent, Tensor dy, Tensor latent, const Storage& weight,
                     const NormForm& form) {
    c.k.head_norm_backward(c.exec, dlatent, weight.trainable() ? weight.g : Tensor{}, dy, latent, weight.w,
                           latent.cols(), form);
}

// A dense copy in temp.
Tensor dense(Ctx& c, Tensor columns) {
    const Tensor copy = c.temp.alloc(columns.dtype, {columns.rows(), columns.cols()});
    c.k.cast(c.exec, copy, columns);
    return copy;
}

}  // namespace

void LatentAttention::rotate(Ctx& c, Tensor q, Tensor pe, bool inverse) const {
    const LatentShape& s = heads_.shape;
    c.k.rope(c.exec, q, table_->view(), c.batch.positions, {s.nope + s.rope, s.nope, s.rope, heads_.layout},
             inverse);
    c.k.rope(c.exec, pe, table_->view(), c.batch.positions, RopeShape::whole(s.rope, heads_.layout), inverse);
}

// Lays out keys and values in temp.
AttentionTensors LatentAttention::tensors(Ctx& c, Tensor q, Tensor kv, Tensor pe, Tensor out,
                                          Tensor lse) const {
    const LatentShape& s = heads_.shape;
    const int64_t width = s.nope + s.rope;
    const Tensor k = c.temp.alloc(q.dtype, {q.rows(), s.heads * width}),
                 v = c.temp.alloc(q.dtype, {q.rows(), s.heads * s.value});
    c.k.latent_keys(c.exec, k, v, kv, pe, s);
    return {.layer = heads_.layer,
            .out = out,
            .lse = lse,
            .q = q,
            .k = k,
            .v = v,
            .shape = {.batch = c.batch.sequences,
                      .sequence = c.batch.seq_len,
                      .heads = s.heads,
                      .kv_heads = s.heads,
                      .head_dim = width,
                      .scale = heads_.scale,
                      .value_dim = s.value,
                      .window = heads_.window}};
}

// Everything except the last product: [T/P, D] -> [T, H value], kept.
Tensor LatentAttention::attend(Ctx& c, Tensor x) const {
    const LatentShape& s = heads_.shape;
    const Tensor down = w_.down.forward(c, x, x.dtype);
    const Latents latents(down, heads_);
    const Tensor q = w_.q.forward(c, w_.q_norm ? normed(c, latents.q, *w_.q_norm, heads_.norm) : x);
    const Tensor kv = w_.kv.forward(c, normed(c, latents.kv, *w_.kv_norm, heads_.norm));
    const Tensor pe = c.frame.keep(x.dtype, {q.rows(), s.rope});
    {
        const Scope temps(c.temp);
        c.k.cast(c.exec, pe, gather_tokens(c, dense(c, latents.pe)));
    }
    rotate(c, q, pe, false);
    const Tensor out = c.frame.keep(x.dtype, {q.rows(), s.heads * s.value});
    const Tensor lse = c.frame.keep(acc_of(x.dtype), {s.heads, q.rows()});
    {
        const Scope temps(c.temp);
        c.kv.forward(c, tensors(c, q, kv, pe, out, lse));
    }
    for (const Tensor& tensor : {down, q, kv, pe, out, lse}) c.frame.push(this, tensor);
    return out;
}

Tensor LatentAttention::forward(Ctx& c, Tensor x, Tensor residual) const {
    return w_.wo.forward(c, attend(c, x), residual);
}

void LatentAttention::rebuild(Ctx& c, Tensor x) const {
    w_.wo.rebuild(c, attend(c, x));
}

Tensor LatentAttention::backward(Ctx& c, Tensor dy) const {
    const Tensor dout = w_.wo.backward(c, dy);
    Tensor down, q, kv, pe, out, lse;
    for (Tensor* tensor : {&lse, &out, &pe, &kv, &q, &down}) *tensor = c.frame.pop(this);
    const Latents latents(down, heads_);
    const Tensor ddown = c.temp.alloc(down.dtype, down.shape);
    const Latents gradients(ddown, heads_);
    {
        const Scope temps(c.temp);
        const AttentionTensors t = tensors(c, q, kv, pe, out, lse);
        c.kv.backward(c, t, dout);  // the gradients overwrite queries, keys and values
        const Tensor dpe = c.temp.alloc(pe.dtype, pe.shape);
        c.k.latent_keys_backward(c.exec, kv, dpe, t.k, t.v, heads_.shape);
        rotate(c, q, dpe, true);
        const Tensor own = c.tp.size() == 1 ? dpe : c.temp.alloc(dpe.dtype, {down.rows(), dpe.cols()});
        scatter_tokens(c, own, dpe);
        c.k.cast(c.exec, gradients.pe, own);
    }
    {
        const Scope temps(c.temp);
        normed_backward(c, gradients.kv, w_.kv.backward(c, kv), latents.kv, *w_.kv_norm, heads_.norm);
    }
    const Tensor dq_input = w_.q.backward(c, q);
    if (w_.q_norm) {
        normed_backward(c, gradients.q, dq_input, latents.q, *w_.q_norm, heads_.norm);
        return w_.down.backward(c, ddown);
    }
    const Tensor dx = w_.down.backward(c, ddown);
    c.k.add(c.exec, dx, dq_input);
    return dx;
}

}  // namespace coeus
