// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/replay.hpp"

namespace coeus {

Flow Replay::forward(Ctx& c, Flow in) const {
    Flow out = in;  // a block leaves types and shapes as they are
    for (int i = 0; i < in.count; ++i) {
        out.tensors[size_t(i)] = c.frame.keep(in.tensors[size_t(i)].dtype, in.tensors[size_t(i)].shape);
        c.frame.push(this, in.tensors[size_t(i)]);
    }
    const FrameScope kept(c.frame);
    const Flow result = block_->forward(c, in);
    for (int i = 0; i < in.count; ++i) c.k.cast(c.exec, out.tensors[size_t(i)], result.tensors[size_t(i)]);
    return out;
}

Flow Replay::backward(Ctx& c, Flow dout) const {
    Flow in = dout;
    for (int i = in.count; i-- > 0;) in.tensors[size_t(i)] = c.frame.pop(this);
    const FrameScope kept(c.frame);
    block_->rebuild(c, in);
    return block_->backward(c, dout);
}

}  // namespace coeus
