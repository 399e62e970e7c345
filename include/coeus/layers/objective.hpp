// SPDX-License-Identifier: Apache-2.0
// Objective: what a model is trained for, after its last block: a loss, and what the model predicts.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class Objective {
public:
    virtual ~Objective() = default;
    /// Adds the scaled loss of the last block's result to scalars.loss, and already adds the gradients of its
    /// own matrices, since what these need is not kept.
    virtual void forward(Ctx& c, Flow in) const = 0;
    /// Returns the gradient of `in`, in the frame.
    virtual Flow backward(Ctx& c) const = 0;
    /// Only adds the scaled loss.
    virtual void evaluate(Ctx& c, Flow in) const = 0;
    /// Computes the model's predictions for each row of `in`, for generation and tests: the logits (acc) of a
    /// language model, [rows, V].
    virtual void predict(Ctx& c, Tensor out, Flow in) const = 0;
};

}  // namespace coeus
