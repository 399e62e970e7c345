// SPDX-License-Identifier: Apache-2.0
// Block: the unit of which a model is a stack. ResidualBlock is the transformer block, with norms before its
// sublayers (Xiong et al. 2020, pre-norm), after them (Liu et al. 2022, Swin Transformer V2; OLMo 2), or both
// (Gemma 2).
#pragma once

#include "coeus/layers/norm.hpp"
#include "coeus/layers/sublayer.hpp"

#include <vector>

namespace coeus {

class Block {
public:
    virtual ~Block() = default;
    /// Computes the result, which is kept in the frame.
    virtual Flow forward(Ctx& c, Flow in) const = 0;
    /// Computes the gradient of the input from the gradient of the result, in the same memory. Both may come
    /// with their largest magnitude, at Ctx::largest_of_gradient; a block that writes to the memory of `dout`
    /// otherwise returns it without.
    virtual Flow backward(Ctx& c, Flow dout) const = 0;
    /// Keeps what forward keeps for the backward, but does not compute the result if that is extra work.
    virtual void rebuild(Ctx& c, Flow in) const { forward(c, in); }
    /// True if the block only looks up rows of a table. Then its backward reads no weights and postpones no
    /// weight gradients.
    virtual bool is_lookup() const { return false; }
};

/// h = h + after(sublayer(before(h))) for each part in turn. The additions are fused: in the forward into the
/// norm after the sublayer or else into its last GEMM, in the backward into the norm before it.
class ResidualBlock : public Block {
public:
    /// One of the norms may be null. All parts of a block have the same ones.
    struct Part {
        std::unique_ptr<Norm> before;
        std::unique_ptr<Sublayer> sublayer;
        std::unique_ptr<ResidualNorm> after = nullptr;

        Tensor input(Ctx& c, Tensor h) const { return before ? before->forward(c, h) : h; }
        Tensor forward(Ctx& c, Tensor h) const;
        void rebuild(Ctx& c, Tensor h) const;
        /// dh: the gradient of the result, which becomes that of h in the same memory.
        Tensor backward(Ctx& c, Tensor dh) const;
    };
    /// Needs at least one part.
    explicit ResidualBlock(std::vector<Part> parts) : parts_(std::move(parts)) {}

    Flow forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;
    void rebuild(Ctx& c, Flow in) const override;

private:
    std::vector<Part> parts_;
};

}  // namespace coeus
