// SPDX-License-Identifier: Apache-2.0
// BatchPart: cuts out of local batches what this rank computes: of each sequence the tokens that are its own,
// where context-parallel ranks divide them; and brings it to the device.
#pragma once

#include "coeus/layers/context.hpp"
#include "coeus/plan/memory.hpp"

#include <optional>

namespace coeus {

/// Token ids of one local batch, as the loader prepared them on the host, of whole sequences: i32[T],
/// document_start optional. All ranks of a context-parallel group have the same.
struct LocalBatch {
    int64_t sequences = 0;
    Tensor tokens, labels, document_start;
};

class BatchPart {
public:
    BatchPart() = default;
    /// For local batches of up to this shape (whole sequences); takes the memory.
    BatchPart(const BatchShape& shape, const SequencePart& part, const Device& device = host_device());

    /// Where the Exec runs. Valid until the next call.
    Batch of(Exec& exec, const LocalBatch& local_batch);

private:
    /// Ids on the host and, of a GPU, there.
    struct Ids {
        OwnedTensor host, there;
        Ids() = default;
        Ids(const Device& device, int64_t count, const std::string& what);
        /// Brings the first ones there.
        Tensor brought(Exec& exec, int64_t count) const;
    };
    int64_t seq_len_ = 0;  // of a whole sequence
    SequencePart part_;
    Ids tokens_, labels_, positions_, document_start_;
    std::optional<int64_t> brought_;  // the queue's point: what the host has must stay until then
};

}  // namespace coeus
