// SPDX-License-Identifier: Apache-2.0
// MtpLayer: one depth of multi-token prediction (DeepSeek-AI 2024, DeepSeek-V3, section 2.2). It makes the
// hidden state of depth k from that of depth k - 1 and the embeddings of the tokens k places ahead:
//   h_k = norm(block(W [enorm(e_k); hnorm(h_{k-1})]))
// All operations but the block work on single tokens, so each tensor-parallel rank has only its own tokens.
#pragma once

#include "coeus/layers/block.hpp"
#include "coeus/layers/linear.hpp"

namespace coeus {

class MtpLayer : public Block {
public:
    struct Parts {
        std::unique_ptr<Norm> enorm, hnorm;
        TokenLinear of_embedding, of_hidden;  ///< each with its columns of W [D, 2 D], after its norm
        std::unique_ptr<Block> block;
        std::unique_ptr<Norm> norm;  ///< its output is kept
    };
    explicit MtpLayer(Parts parts) : parts_(std::move(parts)) {}

    /// {h [T/P, D], e [T/P, D]} -> h [T/P, D], kept. The backward overwrites e by its gradient.
    Flow forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;

private:
    Parts parts_;
};

}  // namespace coeus
