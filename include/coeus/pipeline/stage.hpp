// SPDX-License-Identifier: Apache-2.0
// Stage: runs a decoder's layers over one micro-batch. FSDP's gathering of weights will live here, and only
// here.
#pragma once

#include "coeus/models/decoder.hpp"

namespace coeus {

class Stage {
public:
    explicit Stage(const Decoder& decoder) : decoder_(&decoder) {}

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
    const Decoder* decoder_;
};

}  // namespace coeus
