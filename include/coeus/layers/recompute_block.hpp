// SPDX-License-Identifier: Apache-2.0
// RecomputeBlock: a block with activation checkpointing. Only its input is kept (block_inputs.hpp); the
// backward runs the forward again (Chen et al. 2016).
#pragma once

#include "coeus/layers/block.hpp"

namespace coeus {

class RecomputeBlock : public Block {
public:
    explicit RecomputeBlock(std::unique_ptr<Block> block) : block_(std::move(block)) {}

    Flow forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;

private:
    std::unique_ptr<Block> block_;
};

}  // namespace coeus
