// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/stage.hpp"

namespace coeus {

namespace {

// Rewinds a frame at the end of a block: what was kept for a backward that ran, or that will not.
class FrameScope {
public:
    explicit FrameScope(Frame& frame) : frame_(frame), mark_(frame.mark()) {}
    ~FrameScope() { frame_.rewind(mark_); }
    FrameScope(const FrameScope&) = delete;
    FrameScope& operator=(const FrameScope&) = delete;

private:
    Frame& frame_;
    Frame::Mark mark_;
};

}  // namespace

void Stage::forward_backward(Ctx& c) const {
    const FrameScope kept(c.frame);
    Flow flow = decoder_->embedding().forward(c);
    for (const auto& block : decoder_->blocks()) flow = block->forward(c, flow);
    decoder_->head().forward(c, flow.hidden());

    Flow gradient = decoder_->head().backward(c);
    const auto& blocks = decoder_->blocks();
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block)
        gradient = (*block)->backward(c, gradient);
    decoder_->embedding().backward(c, gradient.hidden());
}

Tensor Stage::hidden_without_backward(Ctx& c) const {
    const Tensor hidden =
        c.frame.keep(decoder_->parameters().types().compute, {c.batch.count(), decoder_->config().dim});
    {
        const FrameScope kept(c.frame);
        c.k.cast(c.exec, hidden, decoder_->embedding().forward(c));
    }
    for (const auto& block : decoder_->blocks()) {
        const FrameScope kept(c.frame);
        c.k.cast(c.exec, hidden, block->forward(c, hidden).hidden());
    }
    return hidden;
}

void Stage::evaluate(Ctx& c) const {
    const FrameScope kept(c.frame);
    decoder_->head().evaluate(c, hidden_without_backward(c));
}

void Stage::logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    decoder_->head().logits(c, out, hidden_without_backward(c));
}

void Stage::last_logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    const Tensor hidden = hidden_without_backward(c);
    const Tensor last = c.frame.keep(hidden.dtype, {c.batch.sequences, hidden.cols()});
    for (int64_t i = 0; i < c.batch.sequences; ++i)
        c.k.cast(c.exec, last.slice_rows(i, 1), hidden.slice_rows((i + 1) * c.batch.seq_len - 1, 1));
    decoder_->head().logits(c, out, last);
}

}  // namespace coeus
