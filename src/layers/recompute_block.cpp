// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/recompute_block.hpp"

#include "coeus/layers/block_inputs.hpp"

namespace coeus {

Flow RecomputeBlock::forward(Ctx& c, Flow in) const {
    // without a backward nobody recalls the input, so it does not leave the device
    const BlockInputs& inputs = c.frame.has_backward() ? c.inputs : inputs_in_frame();
    BlockInputs::Kept kept = inputs.keep(c, this, in);
    const WithoutBackward scope(c.frame);
    const Flow result = block_->forward(c, in);
    kept.left.join();
    cast_flow(c, kept.room, result);
    return kept.room;
}

Flow RecomputeBlock::backward(Ctx& c, Flow dout) const {
    const Flow in = c.inputs.recall(c, this, dout.count());
    const FrameScope kept(c.frame);
    Ctx again = c;
    again.counts = {};  // the forward has counted
    block_->rebuild(again, in);
    return block_->backward(c, dout);
}

}  // namespace coeus
