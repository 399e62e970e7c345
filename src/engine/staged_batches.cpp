// SPDX-License-Identifier: Apache-2.0
#include "coeus/engine/staged_batches.hpp"

namespace coeus {

void StagedBatches::allocate(const LocalBatches& training, const BatchShape& validation,
                             FunctionRef<std::unique_ptr<BatchPart>(const LocalBatches&)> part_of) {
    if (training.shape.sequences > 0) training_ = part_of(training);
    if (validation.sequences > 0) validation_ = part_of({.shape = validation, .trains = false});
    micro_batches_.resize(size_t(training.micro_batches));
    sequences_ = training.shape.sequences / training.micro_batches;
}

void StagedBatches::bring(Exec& exec, int64_t place) {
    const Batch local_batch = training_->bring(exec, place);
    for (size_t m = 0; m < micro_batches_.size(); ++m)
        micro_batches_[m] = local_batch.slice(int64_t(m) * sequences_, sequences_);
}

void StagedBatches::bring_validation(Exec& exec, const LocalBatch& local_batch) {
    validation_->stage(0, local_batch);
    micro_batches_[0] = validation_->bring(exec, 0);
}

}  // namespace coeus
