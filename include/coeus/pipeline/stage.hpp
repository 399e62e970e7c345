// SPDX-License-Identifier: Apache-2.0
// Stage: runs one part of a model over one micro-batch: its segments one after the other. Which layers it has
// is decided by models/stage_split.hpp. FSDP is handled here and only here: weights and gradients of each
// unit are leased while its layers run, and the next unit is gathered meanwhile.
//
//   F   forward          flow of the stage before (or the tokens) -> flow for the next; objectives
//                        compute their losses, and already the gradients of the head, whose logits
//                        are not kept
//   B   backward         gradient of its output -> gradient of its input, and those of its weights. It
//                        ends at Model::first_trained(): the forward keeps nothing of the segments before
//   I   backward_input   the same, but the gradients of its matrices are postponed: the frame owes them
//   W   backward_weight  computes what the frame owes
#pragma once

#include "coeus/models/model.hpp"
#include "coeus/state/fsdp.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace coeus {

class Stage {
public:
    /// `gathered` null: every rank has all weights.
    Stage(const Model& model, const ModelPart& part, Gathered* gathered = nullptr)
        : model_(&model), part_(part), gathered_(gathered) {}
    /// A stage with the whole model.
    explicit Stage(const Model& model, Gathered* gathered = nullptr)
        : Stage(model, model.parts().front(), gathered) {}

    const ModelPart& part() const { return part_; }
    /// True if its backward gets a gradient from the stage after it, or gives one to the stage before it.
    bool exchanges_gradients() const {
        return model_->first_trained() < (is_last() ? part_.first : part_.last);
    }

    /// Copies `in`. The result is in the frame. The last stage returns an empty flow and adds the scaled loss
    /// to scalars.loss.
    Flow forward(Ctx& c, Flow in) const;
    /// `gradient` is the gradient of the output; the result, the gradient of the input, overwrites it. The
    /// last stage has no output: the contents of `gradient` do not matter, and it may be empty if nobody
    /// needs the result. Nor does the result, if the stages before this one train nothing.
    Flow backward(Ctx& c, Flow gradient) const;
    Flow backward_input(Ctx& c, Flow gradient) const;
    void backward_weight(Ctx& c) const;

    /// Sets what is called before each segment but the first of a forward or backward.
    void set_before_segments(std::function<void()> work) { before_segments_ = std::move(work); }

    /// Sets whether the following backwards are the last uses of their units in the step. Then a gradient is
    /// complete when its lease ends.
    void expect_last_uses(bool last) const {
        if (gathered_) gathered_->expect_last_uses(last);
    }

    /// Sets whether the following forward or backward is of the first of two halves that take turns. Then
    /// gradients are reduced after the other one.
    void expect_other_half(bool follows) const {
        if (gathered_) gathered_->expect_other_half(follows);
    }

    /// Sets the stage whose forward follows the next backward; null: none. Its first unit is gathered during
    /// the backward.
    void expect_forward(const Stage* stage) const {
        if (gathered_) gathered_->expect_next(stage ? std::optional(stage->first_unit()) : std::nullopt);
    }

    /// Like forward up to the first objective, without a backward: the frame holds only one block at a time.
    Flow evaluate(Ctx& c, Flow in) const;
    /// For a whole language model: the logits (acc) of every token, out [T, V], for generation and tests.
    void logits(Ctx& c, Tensor out) const;
    /// The logits of the last token of each sequence, out [sequences, V].
    void last_logits(Ctx& c, Tensor out) const;
    /// For a part of a language model: without a backward, the flow for the next stage, which is in the
    /// frame. The last stage returns none, but writes the logits (acc) of some tokens, which are given by
    /// their places in the batch: out [tokens.size(), V/P], the columns of this tensor-parallel rank.
    Flow logits_of(Ctx& c, Flow in, std::span<const int64_t> tokens, Tensor out) const;

private:
    size_t first_unit() const { return model_->segments()[part_.first].unit; }
    bool is_last() const { return part_.last == model_->segments().size(); }
    /// Runs segments [part_.first, end) and keeps nothing for a backward.
    Flow without_backward(Ctx& c, Flow in, size_t end) const;
    /// True if the backward of some layer quantizes the gradient of its outputs with one scale.
    bool has_gradients_with_one_scale() const;
    size_t first_trained() const { return std::clamp(model_->first_trained(), part_.first, part_.last); }
    void predict(Ctx& c, Tensor out, const Flow& flow) const;
    void train_objective(Ctx& c, const Segment& segment, const Flow& flow) const;
    Flow objective_gradient(Ctx& c, size_t segment, const Flow& of_rest) const;
    void before_segment(bool is_first) const {
        if (!is_first && before_segments_) before_segments_();
    }
    void prefetch_forward(size_t segment) const;
    void prefetch_backward(size_t segment) const;
    const Model* model_;
    ModelPart part_;
    Gathered* gathered_;
    std::function<void()> before_segments_;
};

/// A stage for each of the model's parts on this rank.
std::vector<Stage> stages_of(const Model& model, Gathered* gathered);

}  // namespace coeus
