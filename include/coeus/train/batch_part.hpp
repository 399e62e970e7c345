// SPDX-License-Identifier: Apache-2.0
// BatchPart: cuts out of local batches what this rank computes: of each sequence the tokens that are its own,
// where context-parallel ranks divide them.
#pragma once

#include "coeus/layers/context.hpp"
#include "coeus/plan/memory.hpp"

namespace coeus {

/// Token ids of one local batch, as the loader prepared them, of whole sequences: i32[T], document_start
/// optional. All ranks of a context-parallel group have the same.
struct LocalBatch {
    int64_t sequences = 0;
    Tensor tokens, labels, document_start;
};

class BatchPart {
public:
    BatchPart() = default;
    /// For local batches of up to this shape (whole sequences); takes the memory.
    BatchPart(const BatchShape& shape, const SequencePart& part);

    /// Valid until the next call.
    Batch of(const LocalBatch& local_batch);

private:
    int64_t seq_len_ = 0;  // of a whole sequence
    SequencePart part_;
    OwnedTensor tokens_, labels_, positions_;
};

}  // namespace coeus
