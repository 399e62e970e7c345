// SPDX-License-Identifier: Apache-2.0
// Block: what a model is a stack of. DenseBlock is the pre-norm transformer block.
#pragma once

#include "coeus/layers/attention.hpp"
#include "coeus/layers/feed_forward.hpp"
#include "coeus/layers/norm.hpp"

namespace coeus {

class Block {
public:
    virtual ~Block() = default;
    /// The result is kept in the frame.
    virtual Flow forward(Ctx& c, Flow in) const = 0;
    /// Gradient of the result -> gradient of the input, in the same memory.
    virtual Flow backward(Ctx& c, Flow dout) const = 0;
    /// What forward leaves for the backward, without its result where that costs work of its own.
    virtual void rebuild(Ctx& c, Flow in) const { forward(c, in); }
    /// Whether it only looks up rows of a table: then its backward reads no weights and owes no gradients of
    /// them.
    virtual bool is_lookup() const { return false; }
};

/// h = x + attention(norm(x)); y = h + feed_forward(norm(h)). The adds are fused: in the forward into the
/// last GEMM of each half, in the backward into the norms.
class DenseBlock : public Block {
public:
    DenseBlock(std::unique_ptr<Norm> attention_norm, Attention attention, std::unique_ptr<Norm> ffn_norm,
               FeedForward feed_forward)
        : attention_norm_(std::move(attention_norm)),
          ffn_norm_(std::move(ffn_norm)),
          attention_(attention),
          feed_forward_(std::move(feed_forward)) {}

    Flow forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;
    void rebuild(Ctx& c, Flow in) const override;

private:
    std::unique_ptr<Norm> attention_norm_, ffn_norm_;
    Attention attention_;
    FeedForward feed_forward_;
};

}  // namespace coeus
