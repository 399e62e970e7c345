// SPDX-License-Identifier: Apache-2.0
// Block: what a model is a stack of. PreNormBlock is the pre-norm transformer block (Xiong et al. 2020).
#pragma once

#include "coeus/layers/norm.hpp"
#include "coeus/layers/sublayer.hpp"

#include <vector>

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

/// h = h + sublayer(norm(h)), one after the other. The adds are fused: in the forward into the last GEMM of
/// each sublayer, in the backward into the norms.
class PreNormBlock : public Block {
public:
    struct Part {
        std::unique_ptr<Norm> norm;
        std::unique_ptr<Sublayer> sublayer;
    };
    /// At least one part.
    explicit PreNormBlock(std::vector<Part> parts) : parts_(std::move(parts)) {}

    Flow forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;
    void rebuild(Ctx& c, Flow in) const override;

private:
    std::vector<Part> parts_;
};

}  // namespace coeus
