// SPDX-License-Identifier: Apache-2.0
// Stage: runs one part of a decoder over one micro-batch. FSDP lives here, and only here: weights and
// gradients of each unit are leased while its layers run, and the next unit is gathered meanwhile.
//
//   F   forward          flow of the stage before (or the tokens) -> flow for the next; the last stage
//   computes
//                        the loss, and already the gradients of the head, whose logits are not kept
//   B   backward         gradient of its output -> gradient of its input, and those of its weights
//   I   backward_input   the same, but the gradients of its matrices are owed by the frame
//   W   backward_weight  pays them
#pragma once

#include "coeus/models/decoder.hpp"
#include "coeus/state/fsdp.hpp"

namespace coeus {

class Stage {
public:
    /// `gathered` null: every rank has all weights.
    Stage(const Decoder& decoder, const DecoderPart& part, Gathered* gathered = nullptr)
        : decoder_(&decoder), part_(part), gathered_(gathered) {}
    /// The whole decoder.
    explicit Stage(const Decoder& decoder, Gathered* gathered = nullptr)
        : Stage(decoder, decoder.parts().front(), gathered) {}

    const DecoderPart& part() const { return part_; }

    /// `in` is copied. The result lies in the frame; none of the last stage, which adds the scaled loss to
    /// scalars.loss.
    Flow forward(Ctx& c, Flow in) const;
    /// `gradient` is that of the output, and the result, that of the input, takes its memory. The last stage
    /// has no output: what is in `gradient` does not matter, and it may be absent where nobody needs the
    /// result.
    Flow backward(Ctx& c, Flow gradient) const;
    Flow backward_input(Ctx& c, Flow gradient) const;
    void backward_weight(Ctx& c) const;

    /// From here on, or no longer: a gradient is complete when its lease ends, since this was the last use of
    /// its unit in the step.
    void expect_last_uses(bool last) const {
        if (gathered_) gathered_->expect_last_uses(last);
    }

    /// As forward, without a backward: the frame holds one block at a time.
    Flow evaluate(Ctx& c, Flow in) const;
    /// Of a whole decoder: logits (acc) of every token: out [T, V]; for generation and tests.
    void logits(Ctx& c, Tensor out) const;
    /// Logits of the last token of each sequence: out [sequences, V].
    void last_logits(Ctx& c, Tensor out) const;

private:
    Tensor hidden_without_backward(Ctx& c, Flow in) const;
    void prefetch_layer(int64_t layer) const;
    const Decoder* decoder_;
    DecoderPart part_;
    Gathered* gathered_;
};

}  // namespace coeus
