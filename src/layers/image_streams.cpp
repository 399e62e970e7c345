// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/image_streams.hpp"

#include <cmath>

namespace coeus {

Streams::Streams(const Batch& batch, Tensor all) {
    const int64_t rows = batch.sequences * batch.images.text_tokens;
    text = all.slice_rows(0, rows);
    patches = all.slice_rows(rows, all.rows() - rows);
}

void to_sample_order(Ctx& c, Tensor out, Tensor in) {
    c.k.gather_rows(c.exec, out, in, c.batch.images.order, 1);
}

void to_stream_order(Ctx& c, Tensor out, Tensor in) {
    c.k.gather_rows(c.exec, out, in, c.batch.images.back, 1);
}

AttentionTensors attention_of_samples(const Batch& batch, const StreamSizes& sizes, Tensor qk, Tensor v,
                                      Tensor out, Tensor lse) {
    return {.layer = 0,
            .out = out,
            .lse = lse,
            .q = qk.slice_cols(0, sizes.width()),
            .k = qk.slice_cols(sizes.width(), sizes.width()),
            .v = v,
            .shape = {.batch = batch.sequences,
                      .sequence = batch.seq_len,
                      .heads = sizes.heads,
                      .kv_heads = sizes.heads,
                      .head_dim = sizes.head_dim,
                      .scale = 1 / std::sqrt(double(sizes.head_dim)),
                      .causal = false}};
}

std::unique_ptr<NormHeads> norms_of_heads(const StreamSizes& sizes, const Storage& q_norm,
                                          const Storage& k_norm) {
    return std::make_unique<NormHeads>(&q_norm, &k_norm, sizes.heads, sizes.head_dim, sizes.qk_norm_eps);
}

std::unique_ptr<RotateHeads> rotation_of_heads(const StreamSizes& sizes, const RopeTable& table) {
    return std::make_unique<RotateHeads>(table, RopeShape::whole(sizes.head_dim, RopeLayout::interleaved));
}

Flow FromStreamOrder::in_sample_order(Ctx& c, Flow in) {
    Tensor& x = in.all()[0];
    const Tensor rows = c.frame.keep(x.dtype, x.shape);
    to_sample_order(c, rows, x);
    x = rows;
    return in;
}

Flow FromStreamOrder::forward(Ctx& c, Flow in) const {
    return block_->forward(c, in_sample_order(c, in));
}

void FromStreamOrder::rebuild(Ctx& c, Flow in) const {
    block_->rebuild(c, in_sample_order(c, in));
}

Flow FromStreamOrder::backward(Ctx& c, Flow dout) const {
    const Flow din = block_->backward(c, dout);
    const Scope temps(c.temp);
    const Tensor dx = din.hidden(), rows = c.temp.alloc(dx.dtype, dx.shape);
    to_stream_order(c, rows, dx);
    c.k.cast(c.exec, dx, rows);
    return din;
}

}  // namespace coeus
