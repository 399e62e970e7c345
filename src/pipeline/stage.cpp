// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/stage.hpp"

#include "coeus/device/named_range.hpp"
#include "coeus/layers/block_inputs.hpp"

namespace coeus {

using WeightLease = Gathered::WeightLease;
using GradientLease = Gathered::GradientLease;

// Prefetches the unit of a segment of this part, or of the objective if the segment is after the last.
void Stage::prefetch_forward(size_t segment) const {
    if (!gathered_) return;
    if (segment < part_.last)
        gathered_->prefetch(model_->segments()[segment].unit);
    else if (part_.objective)
        gathered_->prefetch(model_->objective_unit());
}

// Prefetches the unit of the segment before this one, if its backward reads weights.
void Stage::prefetch_backward(size_t segment) const {
    if (!gathered_ || segment == part_.first) return;
    const Segment& before = model_->segments()[segment - 1];
    if (!before.block->is_lookup()) gathered_->prefetch(before.unit);
}

Flow Stage::forward(Ctx& c, Flow in) const {
    Flow flow;
    if (part_.first > 0) {
        flow = keep_like(c, in);
        cast_flow(c, flow, in);
    }
    for (size_t s = part_.first; s < part_.last; ++s) {
        const Segment& segment = model_->segments()[s];
        const NamedRange range("{} forward", segment.name);
        const WeightLease weights(gathered_, segment.unit);
        prefetch_forward(s + 1);
        flow = segment.block->forward(c, flow);
    }
    if (!part_.objective) return flow;
    c.inputs.expect_recall(c);
    const WeightLease weights(gathered_, model_->objective_unit());
    GradientLease gradients(gathered_, model_->objective_unit());
    model_->objective()->forward(c, flow);
    push_flow(c, this, model_->objective()->backward(c));
    gradients.release();
    return {};
}

Flow Stage::backward(Ctx& c, Flow gradient) const {
    if (part_.objective) {
        const Flow of_objective = pop_flow(c, this, model_->flow_into(part_.last, 0).count());
        if (gradient.count() > 0)
            cast_flow(c, gradient, of_objective);
        else
            gradient = of_objective;
    }
    for (size_t s = part_.last; s-- > part_.first;) {
        const Segment& segment = model_->segments()[s];
        const NamedRange range("{} backward", segment.name);
        const WeightLease weights(segment.block->is_lookup() ? nullptr : gathered_, segment.unit);
        prefetch_backward(s);
        GradientLease gradients(gathered_, segment.unit);
        gradient = segment.block->backward(c, gradient);
        gradients.release();
    }
    return gradient;
}

Flow Stage::backward_input(Ctx& c, Flow gradient) const {
    const Frame::Owing owing(c.frame);
    return backward(c, gradient);
}

void Stage::backward_weight(Ctx& c) const {
    while (!c.frame.owed().empty()) {
        const size_t unit = c.frame.owed().front().storage->unit();
        GradientLease gradients(gathered_, unit);
        c.frame.pay(c, unit);
        gradients.release();
    }
    if (!gathered_) return;
    // complete since I, but only the last W knows that no further I follows
    for (size_t s = part_.first; s < part_.last; ++s)
        if (const Segment& segment = model_->segments()[s]; segment.block->is_lookup())
            gathered_->end_use(segment.unit);
}

// The frame holds only one block at a time, and the flow between blocks.
Flow Stage::without_backward(Ctx& c, Flow in) const {
    const bool reads_batch = part_.first == 0;
    Flow flow = keep_like(c, reads_batch ? model_->flow_into(1, c.batch.count() / c.tp.size()) : in);
    if (!reads_batch) cast_flow(c, flow, in);
    for (size_t s = part_.first; s < part_.last; ++s) {
        const Segment& segment = model_->segments()[s];
        const FrameScope kept(c.frame);
        const WeightLease weights(gathered_, segment.unit);
        prefetch_forward(s + 1);
        cast_flow(c, flow, segment.block->forward(c, s == 0 ? Flow{} : flow));
    }
    return flow;
}

Flow Stage::evaluate(Ctx& c, Flow in) const {
    const Flow flow = without_backward(c, in);
    if (!part_.objective) return flow;
    const FrameScope kept(c.frame);
    const WeightLease weights(gathered_, model_->objective_unit());
    model_->objective()->evaluate(c, flow);
    return {};
}

void Stage::logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    const Flow flow = without_backward(c, {});
    const WeightLease weights(gathered_, model_->objective_unit());
    model_->objective()->predict(c, out, flow);
}

void Stage::last_logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    const Tensor hidden = without_backward(c, {}).hidden();
    const Tensor last = c.frame.keep(hidden.dtype, {c.batch.sequences, hidden.cols()});
    for (int64_t i = 0; i < c.batch.sequences; ++i)
        c.k.cast(c.exec, last.slice_rows(i, 1), hidden.slice_rows((i + 1) * c.batch.seq_len - 1, 1));
    const WeightLease weights(gathered_, model_->objective_unit());
    model_->objective()->predict(c, out, last);
}

}  // namespace coeus
