// SPDX-License-Identifier: Apache-2.0
// BatchPart: takes this rank's part of each local batch (some tokens of each sequence, if context-parallel
// ranks divide sequences) and copies it to the device.
#pragma once

#include "coeus/base/sample_rows.hpp"
#include "coeus/device/staged_ids.hpp"
#include "coeus/layers/context.hpp"

#include <vector>

namespace coeus {

class BatchPart {
public:
    BatchPart() = default;
    /// For `local_batches` local batches of up to this shape (whole sequences), with the tokens and labels of
    /// `depths` further places ahead (Batch::further_tokens). Allocates the memory.
    BatchPart(const BatchShape& shape, int64_t local_batches, const SequencePart& part, int64_t depths = 0,
              const Device& device = host_device());

    /// Takes this rank's part of a local batch and stores it as number `place`. All ranks of a
    /// context-parallel group must pass the same local batch. An earlier bring() of this place must be
    /// complete. On the host, document starts are not copied, so `local_batch` must remain valid.
    void stage(int64_t place, const SampleRows& local_batch);
    /// Returns the part of a local batch where the Exec runs; on a GPU, copied there as work of its queue.
    /// Valid until the next call.
    Batch bring(Exec& exec, int64_t place) const;

private:
    struct Staged {
        int64_t sequences = 0;
        Tensor document_start;  // on the host
    };
    int64_t seq_len_ = 0;  // of a whole sequence
    int64_t depths_ = 0;
    SequencePart part_;
    StagedIds tokens_, labels_, document_start_;  // the first two: [1 + depths, tokens]
    OwnedTensor positions_;                       // the same for all local batches
    std::vector<Staged> staged_;
};

}  // namespace coeus
