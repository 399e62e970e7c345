// SPDX-License-Identifier: Apache-2.0
// Batches of validation: the loss, the scores of tokens, and the logits of tokens that follow.
#include "coeus/base/ignored_label.hpp"
#include "coeus/engine/engine.hpp"

#include <algorithm>

namespace coeus {

const Batch& Engine::bring_validation(const LocalBatch& local) {
    batches_.bring_validation(exec_, local);
    validation_->stage({});
    validation_->bring(exec_);
    return batches_.micro_batch(0);
}

Ctx Engine::validation_context(const Batch& batch, Frame& frame) {
    return exchanges_->context({exec_, *kernels_, frame, temporaries_.of(false), validation_->scalars()},
                               batch, Exchanges::Pass::validation);
}

bool Engine::has_last_stage() const {
    const size_t last = config_.whole().last;
    return std::ranges::find(model_->parts(), last, &ModelPart::last) != model_->parts().end();
}

double Engine::evaluate(const LocalBatch& local) {
    return evaluate(local, ScoredTokens{});
}

double Engine::evaluate(const LocalBatch& local, const ScoredTokens& scored) {
    const Batch& batch = bring_validation(local);
    executor_.evaluate(model_->flow_into(1, batch.shape()), [&](int, Frame& frame, bool) {
        Ctx c = validation_context(batch, frame);
        c.scored = scored;
        return c;
    });
    return validation_->read(exec_).loss;
}

double Engine::evaluate(const LocalBatch& local, TokenScores& scores) {
    require(options_.scores_tokens, "this engine does not score tokens");
    const SampleRows& rows = local.text;
    const SequencePart part = part_of_sequences(rows.seq_len);
    const int64_t own = rows.sequences * part.count, all = rows.count();
    const Tensor there(scores_.view.data, scores_.view.dtype, {3, own});
    const auto row = [&](int64_t number) { return there.slice_rows(number, 1).reshape({own}); };
    const double loss = evaluate(local, {.losses = row(0), .label_logits = row(1), .largest_logits = row(2)});

    std::vector<double> summed(size_t(2 * all));
    if (has_last_stage()) {
        std::vector<std::byte> copy(size_t(there.bytes()));
        exec_.device->copy(copy.data(), there.data, there.bytes());
        const Tensor here(copy.data(), there.dtype, there.shape);
        for (int64_t i = 0; i < own; ++i) {
            const auto at = size_t(i / part.count * rows.seq_len + part.index(i % part.count));
            if (rows.labels[at] == ignored_label) continue;
            summed[at] = element(here, i);
            summed[size_t(all) + at] = element(here, own + i) >= element(here, 2 * own + i) ? 1 : 0;
        }
    }
    for (const unsigned axis : {axis::cp, axis::pp})
        (*mesh_)[axis].all_reduce(Tensor(summed.data(), Dtype::f64, {2 * all}));
    scores.losses.assign(summed.begin(), summed.begin() + all);
    scores.label_is_largest.assign(summed.begin() + all, summed.end());
    return loss;
}

std::vector<Tensor> Engine::predict(const LocalBatch& local, std::span<const int64_t> places) {
    require(options_.predicts, "this engine does not predict");
    const SequencePart part = part_of_sequences(local.text.seq_len);
    const auto count = int64_t(places.size());
    require(count == local.text.sequences, "predict() needs a place of each sequence");
    std::vector<int64_t> tokens;
    std::vector<bool> is_here;
    for (int64_t row = 0; row < count; ++row) {
        int64_t i = 0;
        while (i < part.count && part.index(i) != places[size_t(row)]) ++i;
        is_here.push_back(i < part.count);
        // if another rank has the place: any token, since all ranks compute together
        tokens.push_back(row * part.count + (is_here.back() ? i : 0));
    }
    const Batch& batch = bring_validation(local);
    executor_.predict(
        model_->flow_into(1, batch.shape()),
        [&](int, Frame& frame, bool) { return validation_context(batch, frame); }, tokens,
        has_last_stage() ? logits_->own(count) : Tensor{});
    std::vector<Tensor> logits(places.size());
    if (!has_last_stage()) {
        exec_.queue->finish();
        return logits;
    }
    const Tensor all = logits_->gather(exec_, count);
    for (int64_t row = 0; row < count; ++row)
        if (is_here[size_t(row)]) logits[size_t(row)] = all.slice_rows(row, 1);
    return logits;
}

}  // namespace coeus
