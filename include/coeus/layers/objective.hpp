// SPDX-License-Identifier: Apache-2.0
// Objective: what a model is trained for, after its last block: a loss, and what the model predicts.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class Objective {
public:
    virtual ~Objective() = default;
    /// Adds the scaled loss of the last block's result to scalars.loss, and already the gradients of its own
    /// matrices, since what they need is not kept.
    virtual void forward(Ctx& c, Flow in) const = 0;
    /// -> gradient of `in`, in the frame.
    virtual Flow backward(Ctx& c) const = 0;
    /// Adds the scaled loss only.
    virtual void evaluate(Ctx& c, Flow in) const = 0;
    /// What the model predicts for each row of `in`, for generation and tests: logits (acc) of a language
    /// model, [rows, V].
    virtual void predict(Ctx& c, Tensor out, Flow in) const = 0;
};

}  // namespace coeus
