// SPDX-License-Identifier: Apache-2.0
// StagedBatches: this rank's parts of the local batches of a step and of a validation batch. They are staged
// on the host before a step, and brought to where the engine computes one at a time, in micro-batches.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/models/batch_kind.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace coeus {

class StagedBatches {
public:
    /// Allocates the memory, by `part_of`. Sequences 0: there is no training, or no validation.
    void allocate(const LocalBatches& training, const BatchShape& validation,
                  FunctionRef<std::unique_ptr<BatchPart>(const LocalBatches&)> part_of);

    /// BatchPart::stage() of a local batch of training.
    void stage(int64_t place, const LocalBatch& local_batch) { training_->stage(place, local_batch); }
    /// BatchPart::bring() of a local batch of training, divided into micro-batches.
    void bring(Exec& exec, int64_t place);
    /// A micro-batch of the local batch that was brought last.
    const Batch& micro_batch(int number) const { return micro_batches_[size_t(number)]; }
    /// Stages a validation batch, and brings it as the micro-batch number 0.
    void bring_validation(Exec& exec, const LocalBatch& local_batch);

private:
    std::unique_ptr<BatchPart> training_, validation_;
    std::vector<Batch> micro_batches_;
    int64_t sequences_ = 0;  // of a micro-batch of training
};

}  // namespace coeus
