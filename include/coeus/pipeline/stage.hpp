// SPDX-License-Identifier: Apache-2.0
// Stage: runs a decoder's layers over one micro-batch. FSDP lives here, and only here: weights and gradients
// of each unit are leased while its layers run, and the next unit is gathered meanwhile.
#pragma once

#include "coeus/models/decoder.hpp"
#include "coeus/state/gathered.hpp"

namespace coeus {

class Stage {
public:
    /// `gathered` null: every rank has all weights.
    explicit Stage(const Decoder& decoder, Gathered* gathered = nullptr)
        : decoder_(&decoder), gathered_(gathered) {}

    /// Adds the batch's scaled loss to scalars.loss and its gradients to the storages.
    void forward_backward(Ctx& c) const;
    /// Adds the scaled loss only; the frame holds one block at a time.
    void evaluate(Ctx& c) const;
    /// Logits (acc) of every token: out [T, V]; for generation and tests.
    void logits(Ctx& c, Tensor out) const;
    /// Logits of the last token of each sequence: out [sequences, V].
    void last_logits(Ctx& c, Tensor out) const;

private:
    Tensor hidden_without_backward(Ctx& c) const;
    void prefetch(size_t unit) const;
    const Decoder* decoder_;
    Gathered* gathered_;
};

}  // namespace coeus
