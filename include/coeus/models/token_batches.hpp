// SPDX-License-Identifier: Apache-2.0
// TokenBatches: batches of token ids, which language models read. TokenPart: this rank's part of them.
#pragma once

#include "coeus/device/staged_ids.hpp"
#include "coeus/models/batch_kind.hpp"

#include <vector>

namespace coeus {

class TokenBatches : public BatchKind {
public:
    /// `depths`: training reads the tokens and labels of so many further places ahead
    /// (Batch::further_tokens). The ids of drawn() are below `vocab`.
    explicit TokenBatches(int64_t depths = 0, int64_t vocab = 1) : depths_(depths), vocab_(vocab) {}

    const char* name() const override { return "token ids"; }
    /// The host has: tokens, labels and document starts of two steps of local batches (one in use, one being
    /// read) and of a validation batch; and, for each local batch of a step, the tokens, labels and positions
    /// of this rank's part, in training also the tokens and labels of the places further ahead. A GPU has
    /// this rank's part of one local batch and the document starts of its whole sequences; the host then also
    /// has copies of the document starts for the transfers.
    BatchBytes bytes(const LocalBatches& training, const BatchShape& validation, int ranks = 1,
                     Backend backend = Backend::cpu) const override;
    std::unique_ptr<BatchPart> part(const LocalBatches& batches, const SequencePart& part,
                                    const Device& device) const override;
    Batch planned(const BatchShape& shape, int ranks) const override;
    /// Each token is its own label, and each sequence one document.
    std::shared_ptr<const LocalBatch> drawn(const BatchShape& shape) const override;

private:
    int64_t depths_, vocab_;
};

class TokenPart : public BatchPart {
public:
    /// For `local_batches` local batches of up to this shape (whole sequences), with the tokens and labels of
    /// `depths` further places ahead. Allocates the memory.
    TokenPart(const BatchShape& shape, int64_t local_batches, const SequencePart& part, int64_t depths = 0,
              const Device& device = host_device());

    /// On the host, document starts are not copied.
    void stage(int64_t place, const LocalBatch& batch) override;
    Batch bring(Exec& exec, int64_t place) const override;

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
