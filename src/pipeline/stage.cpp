// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/stage.hpp"

#include "coeus/device/named_range.hpp"
#include "coeus/layers/block_inputs.hpp"

namespace coeus {

using WeightLease = Gathered::WeightLease;
using GradientLease = Gathered::GradientLease;

// The unit of a layer of this part, or of the head behind the last.
void Stage::prefetch_layer(int64_t layer) const {
    if (!gathered_ || layer < part_.first_layer) return;
    if (layer < part_.last_layer)
        gathered_->prefetch(decoder_->block_unit(size_t(layer)));
    else if (part_.head)
        gathered_->prefetch(decoder_->head_unit());
}

Flow Stage::forward(Ctx& c, Flow in) const {
    Flow flow;
    if (part_.embedding) {
        const WeightLease weights(gathered_, decoder_->embedding_unit());
        prefetch_layer(part_.first_layer);
        flow = decoder_->embedding().forward(c);
    } else {
        flow = c.frame.keep(in.hidden().dtype, in.hidden().shape);
        c.k.cast(c.exec, flow.hidden(), in.hidden());
    }
    for (int64_t layer = part_.first_layer; layer < part_.last_layer; ++layer) {
        const NamedRange range("block {} forward", layer);
        const WeightLease weights(gathered_, decoder_->block_unit(size_t(layer)));
        prefetch_layer(layer + 1);
        flow = decoder_->blocks()[size_t(layer)]->forward(c, flow);
    }
    if (!part_.head) return flow;
    c.inputs.expect_recall(c);
    const WeightLease weights(gathered_, decoder_->head_unit());
    const GradientLease gradients(gathered_, decoder_->head_unit());
    decoder_->head().forward(c, flow.hidden());
    c.frame.push(this, decoder_->head().backward(c));
    return {};
}

Flow Stage::backward(Ctx& c, Flow gradient) const {
    if (part_.head) {
        const Tensor of_head = c.frame.pop(this);
        if (gradient.count > 0)
            c.k.cast(c.exec, gradient.hidden(), of_head);
        else
            gradient = of_head;
    }
    for (int64_t layer = part_.last_layer; layer-- > part_.first_layer;) {
        const NamedRange range("block {} backward", layer);
        const size_t unit = decoder_->block_unit(size_t(layer));
        const WeightLease weights(gathered_, unit);
        prefetch_layer(layer - 1);
        const GradientLease gradients(gathered_, unit);
        gradient = decoder_->blocks()[size_t(layer)]->backward(c, gradient);
    }
    if (!part_.embedding) return gradient;
    const GradientLease gradients(gathered_, decoder_->embedding_unit());
    decoder_->embedding().backward(c, gradient.hidden());
    return {};
}

Flow Stage::backward_input(Ctx& c, Flow gradient) const {
    const Frame::Owing owing(c.frame);
    return backward(c, gradient);
}

void Stage::backward_weight(Ctx& c) const {
    while (!c.frame.owed().empty()) {
        const size_t unit = c.frame.owed().front().storage->unit();
        const GradientLease gradients(gathered_, unit);
        c.frame.pay(c, unit);
    }
    // complete since I, but only the last W knows that no I will follow
    if (gathered_ && part_.embedding) gathered_->end_use(decoder_->embedding_unit());
}

Tensor Stage::hidden_without_backward(Ctx& c, Flow in) const {
    const int64_t tokens = c.batch.count() / c.tp.size();
    const Tensor hidden =
        c.frame.keep(decoder_->parameters().types().compute, {tokens, decoder_->config().dim});
    if (part_.embedding) {
        const FrameScope kept(c.frame);
        const WeightLease weights(gathered_, decoder_->embedding_unit());
        prefetch_layer(part_.first_layer);
        c.k.cast(c.exec, hidden, decoder_->embedding().forward(c));
    } else {
        c.k.cast(c.exec, hidden, in.hidden());
    }
    for (int64_t layer = part_.first_layer; layer < part_.last_layer; ++layer) {
        const FrameScope kept(c.frame);
        const WeightLease weights(gathered_, decoder_->block_unit(size_t(layer)));
        prefetch_layer(layer + 1);
        c.k.cast(c.exec, hidden, decoder_->blocks()[size_t(layer)]->forward(c, hidden).hidden());
    }
    return hidden;
}

Flow Stage::evaluate(Ctx& c, Flow in) const {
    const Tensor hidden = hidden_without_backward(c, in);
    if (!part_.head) return hidden;
    const FrameScope kept(c.frame);
    const WeightLease weights(gathered_, decoder_->head_unit());
    decoder_->head().evaluate(c, hidden);
    return {};
}

void Stage::logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    const Tensor hidden = hidden_without_backward(c, {});
    const WeightLease weights(gathered_, decoder_->head_unit());
    decoder_->head().logits(c, out, hidden);
}

void Stage::last_logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    const Tensor hidden = hidden_without_backward(c, {});
    const Tensor last = c.frame.keep(hidden.dtype, {c.batch.sequences, hidden.cols()});
    for (int64_t i = 0; i < c.batch.sequences; ++i)
        c.k.cast(c.exec, last.slice_rows(i, 1), hidden.slice_rows((i + 1) * c.batch.seq_len - 1, 1));
    const WeightLease weights(gathered_, decoder_->head_unit());
    decoder_->head().logits(c, out, last);
}

}  // namespace coeus
