// SPDX-License-Identifier: Apache-2.0
// The two streams of a model of images, text and patches, and the two orders of their rows (ImageRows).
#pragma once

#include "coeus/layers/block.hpp"
#include "coeus/layers/exchanges/kv_exchange.hpp"
#include "coeus/layers/head_steps.hpp"

#include <memory>

namespace coeus {

/// The rows of the two streams of a tensor in stream order.
struct Streams {
    Tensor text, patches;
    Streams() = default;
    Streams(const Batch& batch, Tensor all);
};

/// out = in, from stream order to sample order, and the reverse. Both may be columns of wider tensors.
void to_sample_order(Ctx& c, Tensor out, Tensor in);
void to_stream_order(Ctx& c, Tensor out, Tensor in);

/// The sizes of a block of a model of images.
struct StreamSizes {
    int64_t heads = 1, head_dim = 2;
    double norm_eps = 1e-6;  ///< of the LayerNorms
    double qk_norm_eps = 1e-6;

    int64_t width() const { return heads * head_dim; }
};

/// Attention of every token of a sample to all of them. Rows are in sample order. `qk`: [N, 2 H d], queries
/// and keys; `v`, `out`: [N, H d]; `lse`: [H, N].
AttentionTensors attention_of_samples(const Batch& batch, const StreamSizes& sizes, Tensor qk, Tensor v,
                                      Tensor out, Tensor lse);

/// Norms of the heads of queries and keys, and RoPE. The weights are [d]; the table must outlive them.
std::unique_ptr<NormHeads> norms_of_heads(const StreamSizes& sizes, const Storage& q_norm,
                                          const Storage& k_norm);
std::unique_ptr<RotateHeads> rotation_of_heads(const StreamSizes& sizes, const RopeTable& table);

/// A block for rows in sample order, which gets them in stream order: the first after blocks that keep the
/// streams apart. The flow's other tensors pass through.
class FromStreamOrder : public Block {
public:
    explicit FromStreamOrder(std::unique_ptr<Block> block) : block_(std::move(block)) {}
    Flow forward(Ctx& c, Flow in) const override;
    void rebuild(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;

private:
    static Flow in_sample_order(Ctx& c, Flow in);
    std::unique_ptr<Block> block_;
};

}  // namespace coeus
