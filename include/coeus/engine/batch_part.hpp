// SPDX-License-Identifier: Apache-2.0
// BatchPart: cuts out of local batches what this rank computes: of each sequence the tokens that are its own,
// where context-parallel ranks divide them; and brings it to the device.
#pragma once

#include "coeus/base/sample_rows.hpp"
#include "coeus/device/staged_ids.hpp"
#include "coeus/layers/context.hpp"

#include <vector>

namespace coeus {

class BatchPart {
public:
    BatchPart() = default;
    /// For so many local batches of up to this shape (whole sequences); takes the memory.
    BatchPart(const BatchShape& shape, int64_t local_batches, const SequencePart& part,
              const Device& device = host_device());

    /// Cuts out what is local batch number `place`; all ranks of a context-parallel group have the same. What
    /// was brought from there before has arrived; on the host, beginnings of documents are not copied.
    void stage(int64_t place, const SampleRows& local_batch);
    /// Where the Exec runs, as its work. Valid until the next one is brought.
    Batch bring(Exec& exec, int64_t place) const;

private:
    struct Staged {
        int64_t sequences = 0;
        Tensor document_start;  // on the host
    };
    int64_t seq_len_ = 0;  // of a whole sequence
    SequencePart part_;
    StagedIds tokens_, labels_, document_start_;
    OwnedTensor positions_;  // alike for all
    std::vector<Staged> staged_;
};

}  // namespace coeus
