// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/stage.hpp"

namespace coeus {

using WeightLease = Gathered::WeightLease;
using GradientLease = Gathered::GradientLease;

void Stage::prefetch(size_t unit) const {
    if (gathered_) gathered_->prefetch(unit);
}

void Stage::forward_backward(Ctx& c) const {
    const FrameScope kept(c.frame);
    const auto& blocks = decoder_->blocks();
    const size_t embedding = decoder_->embedding_unit(), head = decoder_->head_unit();
    const auto unit_of = [&](size_t block) {
        return block < blocks.size() ? decoder_->block_unit(block) : head;
    };

    Flow flow;
    {
        const WeightLease weights(gathered_, embedding);
        prefetch(unit_of(0));
        flow = decoder_->embedding().forward(c);
    }
    for (size_t b = 0; b < blocks.size(); ++b) {
        const WeightLease weights(gathered_, unit_of(b));
        prefetch(unit_of(b + 1));
        flow = blocks[b]->forward(c, flow);
    }
    Flow gradient;
    {
        const WeightLease weights(gathered_, head);
        const GradientLease gradients(gathered_, head);
        decoder_->head().forward(c, flow.hidden());
        gradient = decoder_->head().backward(c);
    }
    for (size_t b = blocks.size(); b-- > 0;) {
        const WeightLease weights(gathered_, unit_of(b));
        if (b > 0) prefetch(unit_of(b - 1));
        const GradientLease gradients(gathered_, unit_of(b));
        gradient = blocks[b]->backward(c, gradient);
    }
    const GradientLease gradients(gathered_, embedding);
    decoder_->embedding().backward(c, gradient.hidden());
}

Tensor Stage::hidden_without_backward(Ctx& c) const {
    const auto& blocks = decoder_->blocks();
    const int64_t tokens = c.batch.count() / c.tp.size();
    const Tensor hidden =
        c.frame.keep(decoder_->parameters().types().compute, {tokens, decoder_->config().dim});
    {
        const FrameScope kept(c.frame);
        const WeightLease weights(gathered_, decoder_->embedding_unit());
        prefetch(blocks.empty() ? decoder_->head_unit() : decoder_->block_unit(0));
        c.k.cast(c.exec, hidden, decoder_->embedding().forward(c));
    }
    for (size_t b = 0; b < blocks.size(); ++b) {
        const FrameScope kept(c.frame);
        const WeightLease weights(gathered_, decoder_->block_unit(b));
        prefetch(b + 1 < blocks.size() ? decoder_->block_unit(b + 1) : decoder_->head_unit());
        c.k.cast(c.exec, hidden, blocks[b]->forward(c, hidden).hidden());
    }
    return hidden;
}

void Stage::evaluate(Ctx& c) const {
    const FrameScope kept(c.frame);
    const Tensor hidden = hidden_without_backward(c);
    const WeightLease weights(gathered_, decoder_->head_unit());
    decoder_->head().evaluate(c, hidden);
}

void Stage::logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    const Tensor hidden = hidden_without_backward(c);
    const WeightLease weights(gathered_, decoder_->head_unit());
    decoder_->head().logits(c, out, hidden);
}

void Stage::last_logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    const Tensor hidden = hidden_without_backward(c);
    const Tensor last = c.frame.keep(hidden.dtype, {c.batch.sequences, hidden.cols()});
    for (int64_t i = 0; i < c.batch.sequences; ++i)
        c.k.cast(c.exec, last.slice_rows(i, 1), hidden.slice_rows((i + 1) * c.batch.seq_len - 1, 1));
    const WeightLease weights(gathered_, decoder_->head_unit());
    decoder_->head().logits(c, out, last);
}

}  // namespace coeus
