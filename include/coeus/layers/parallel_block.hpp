// SPDX-License-Identifier: Apache-2.0
// ParallelBlock: attention and the feed-forward layer of a block side by side, on the output of one norm
// (Wang and Komatsuzaki 2021, GPT-J; Cohere's models).
#pragma once

#include "coeus/layers/block.hpp"

#include <vector>

namespace coeus {

/// h = h + the sum of sublayer(norm(h)) over the sublayers. The additions are fused as in PreNormBlock; only
/// the gradients of the norm's output are added by themselves.
class ParallelBlock : public Block {
public:
    /// Needs at least one sublayer. The norm keeps its output: what the sublayers keep lies above what the
    /// norm would need to compute it again.
    ParallelBlock(std::unique_ptr<Norm> norm, std::vector<std::unique_ptr<Sublayer>> sublayers)
        : norm_(std::move(norm)), sublayers_(std::move(sublayers)) {}

    Flow forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;
    void rebuild(Ctx& c, Flow in) const override;

private:
    std::unique_ptr<Norm> norm_;
    std::vector<std::unique_ptr<Sublayer>> sublayers_;
};

}  // namespace coeus
