// SPDX-License-Identifier: Apache-2.0
// BatchKind: what the batches of a model consist of, such as the token ids of texts. BatchPart: this rank's
// part of them, on its device.
#pragma once

#include "coeus/base/local_batch.hpp"
#include "coeus/kernels/sequence_part.hpp"
#include "coeus/layers/context.hpp"

#include <memory>

namespace coeus {

/// This rank's parts of local batches: some positions of each sequence, if context-parallel ranks divide
/// sequences.
class BatchPart {
public:
    BatchPart() = default;
    virtual ~BatchPart() = default;
    BatchPart(const BatchPart&) = delete;
    BatchPart& operator=(const BatchPart&) = delete;

    /// Takes this rank's part of a local batch and stores it as number `place`. All ranks of a
    /// context-parallel group must pass the same local batch. An earlier bring() of this place must be
    /// complete. On the host, not everything is copied, so that what `local_batch` views must remain valid.
    virtual void stage(int64_t place, const LocalBatch& local_batch) = 0;
    /// Returns the part of a local batch where the Exec runs; on a GPU, copied there as work of its queue.
    /// Valid until the next call.
    virtual Batch bring(Exec& exec, int64_t place) const = 0;
};

/// The bytes of batches on the host and on a GPU.
struct BatchBytes {
    int64_t host = 0, device = 0;
};

/// Local batches of a run: their shape, of whole sequences, and how many a step has.
struct LocalBatches {
    BatchShape shape;
    int64_t number = 1;
    int64_t micro_batches = 1;  ///< into which the pipeline divides each of them
    bool trains = true;         ///< false: for validation
};

class BatchKind {
public:
    BatchKind() = default;
    virtual ~BatchKind() = default;
    BatchKind(const BatchKind&) = delete;
    BatchKind& operator=(const BatchKind&) = delete;

    /// The name of their memory in a plan: "token ids".
    virtual const char* name() const = 0;
    /// Everything that a run's batches take, with those that the loader has read ahead; `ranks` divide each
    /// sequence.
    virtual BatchBytes bytes(const LocalBatches& training, const BatchShape& validation, int ranks,
                             Backend backend) const = 0;
    /// Room for local batches of up to this shape, of which this rank has `part` of each sequence. Allocates
    /// the memory.
    virtual std::unique_ptr<BatchPart> part(const LocalBatches& batches, const SequencePart& part,
                                            const Device& device) const = 0;
    /// A batch without data, for planning; `ranks` ranks divide each sequence.
    virtual Batch planned(const BatchShape& shape, int ranks) const = 0;
    /// A local batch that nobody wrote, the same each time: for a step that is recorded or timed.
    virtual std::shared_ptr<const LocalBatch> drawn(const BatchShape& shape) const = 0;
};

}  // namespace coeus
