// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/stage.hpp"

#include "coeus/device/named_range.hpp"
#include "coeus/layers/block_inputs.hpp"
#include "coeus/layers/exchanges/sequence_parallel.hpp"

#include <algorithm>

namespace coeus {

using WeightLease = Gathered::WeightLease;
using GradientLease = Gathered::GradientLease;

bool Stage::has_gradients_with_one_scale() const {
    return std::ranges::any_of(model_->parameters().storages(), [](const Storage& storage) {
        return forms_of(storage.recipe()).dy.groups == ScaleGroups::one;
    });
}

// Prefetches the units of the segments from this one on.
void Stage::prefetch_forward(size_t segment) const {
    if (!gathered_) return;
    const size_t end = std::min(part_.last, segment + size_t(gathered_->prefetched_units()));
    for (size_t s = segment; s < end; ++s) gathered_->prefetch(model_->segments()[s].unit);
}

// Prefetches the units of the last segments before this one whose backward reads weights; if there are not
// enough, the unit with which the forward that follows begins.
void Stage::prefetch_backward(size_t segment) const {
    if (!gathered_) return;
    int left = gathered_->prefetched_units();
    for (size_t s = segment; left > 0 && s-- > first_trained();) {
        const Segment& before = model_->segments()[s];
        if (!before.block || before.block->is_lookup()) continue;
        gathered_->prefetch(before.unit);
        --left;
    }
    if (left > 0) gathered_->prefetch_next();
}

// The gradients of an objective are complete at once; that of its input waits in the frame.
void Stage::train_objective(Ctx& c, const Segment& segment, const Flow& flow) const {
    GradientLease gradients(gathered_, segment.unit);
    segment.objective->forward(c, flow);
    push_flow(c, this, segment.objective->backward(c));
    gradients.release();
}

namespace {

// After its elements were changed, or when the room of the largest magnitude ends.
Flow without_largest(Flow flow) {
    for (Tensor& tensor : flow.all()) tensor.largest = nullptr;
    return flow;
}

}  // namespace

// The gradient of an objective's input: that of its loss, added to that of the segments after it.
Flow Stage::objective_gradient(Ctx& c, size_t segment, const Flow& of_rest) const {
    const Flow own = pop_flow(c, this, model_->flow_into(segment, {}).count());
    if (segment + 1 < part_.last) {
        add_flow(c, of_rest, own);
        return without_largest(of_rest);
    }
    if (of_rest.count() == 0) return own;
    cast_flow(c, of_rest, own);
    return of_rest;
}

Flow Stage::forward(Ctx& c, Flow in) const {
    Flow flow;
    if (first_trained() > 0) flow = without_backward(c, in, first_trained());
    for (size_t s = first_trained(); s < part_.last; ++s) {
        before_segment(s == part_.first);
        const Segment& segment = model_->segments()[s];
        const NamedRange range("{} forward", segment.name);
        if (s + 1 == model_->segments().size()) c.inputs.expect_recall(c);
        const WeightLease weights(gathered_, segment.unit);
        prefetch_forward(s + 1);
        if (segment.block)
            flow = segment.block->forward(c, flow);
        else
            train_objective(c, segment, flow);
    }
    return is_last() ? Flow{} : flow;
}

Flow Stage::backward(Ctx& c, Flow gradient) const {
    const Scope temps(c.temp);
    Ctx with_room = c;
    if (has_gradients_with_one_scale()) with_room.largest_of_gradient = c.temp.alloc(Dtype::i32, {1});
    for (size_t s = part_.last; s-- > first_trained();) {
        before_segment(s + 1 == part_.last);
        const Segment& segment = model_->segments()[s];
        const NamedRange range("{} backward", segment.name);
        if (segment.objective) {
            gradient = objective_gradient(with_room, s, gradient);
            continue;
        }
        const WeightLease weights(segment.block->is_lookup() ? nullptr : gathered_, segment.unit);
        prefetch_backward(s);
        GradientLease gradients(gathered_, segment.unit);
        gradient = segment.block->backward(with_room, gradient);
        gradients.release();
    }
    return without_largest(gradient);
}

Flow Stage::backward_input(Ctx& c, Flow gradient) const {
    const Frame::Owing owing(c.frame);
    return backward(c, gradient);
}

void Stage::backward_weight(Ctx& c) const {
    while (!c.frame.owed().empty()) {
        const size_t unit = c.frame.owed().front().unit();
        GradientLease gradients(gathered_, unit);
        c.frame.pay(c, unit);
        gradients.release();
    }
    if (!gathered_) return;
    // the gradients of looked-up tables are complete after I, but only W knows whether another I follows
    for (size_t s = first_trained(); s < part_.last; ++s)
        if (const Segment& segment = model_->segments()[s]; segment.block && segment.block->is_lookup())
            gathered_->end_use(segment.unit);
}

// The frame holds only one block at a time, and the flow between blocks.
Flow Stage::without_backward(Ctx& c, Flow in, size_t end) const {
    const bool reads_batch = part_.first == 0;
    Flow flow = keep_like(c, reads_batch ? model_->flow_into(1, c.batch.shape()) : in);
    if (!reads_batch) cast_flow(c, flow, in);
    for (size_t s = part_.first; s < end; ++s) {
        before_segment(s == part_.first);
        const Segment& segment = model_->segments()[s];
        const WithoutBackward kept(c.frame);
        const WeightLease weights(gathered_, segment.unit);
        prefetch_forward(s + 1);
        cast_flow(c, flow, segment.block->forward(c, s == 0 ? Flow{} : flow));
    }
    return flow;
}

Flow Stage::evaluate(Ctx& c, Flow in) const {
    const Flow flow = without_backward(c, in, std::min(part_.last, model_->first_objective()));
    if (!is_last()) return flow;
    const FrameScope kept(c.frame);
    const Segment& first = model_->segments()[model_->first_objective()];
    const WeightLease weights(gathered_, first.unit);
    first.objective->evaluate(c, flow);
    return {};
}

void Stage::logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    predict(c, out, without_backward(c, {}, model_->first_objective()));
}

void Stage::last_logits(Ctx& c, Tensor out) const {
    const FrameScope kept(c.frame);
    std::vector<int64_t> last;
    for (int64_t i = 1; i <= c.batch.sequences; ++i) last.push_back(i * c.batch.seq_len - 1);
    logits_of(c, {}, last, out);
}

Flow Stage::logits_of(Ctx& c, Flow in, std::span<const int64_t> tokens, Tensor out) const {
    const Flow flow = without_backward(c, in, std::min(part_.last, model_->first_objective()));
    if (!is_last()) return flow;
    const FrameScope kept(c.frame);
    const Tensor hidden = flow.hidden();
    const Tensor chosen = c.frame.keep(hidden.dtype, {int64_t(tokens.size()), hidden.cols()});
    {
        const Scope temps(c.temp);
        const Tensor all = gather_tokens(c, hidden);
        for (int64_t i = 0; i < chosen.rows(); ++i)
            c.k.cast(c.exec, chosen.slice_rows(i, 1), all.slice_rows(tokens[size_t(i)], 1));
    }
    predict(c, out, chosen);
    return {};
}

void Stage::predict(Ctx& c, Tensor out, const Flow& flow) const {
    const Segment& first = model_->segments()[model_->first_objective()];
    const WeightLease weights(gathered_, first.unit);
    first.objective->predict(c, out, flow);
}

std::vector<Stage> stages_of(const Model& model, Gathered* gathered) {
    std::vector<Stage> stages;
    for (const ModelPart& part : model.parts()) stages.emplace_back(model, part, gathered);
    return stages;
}

}  // namespace coeus
