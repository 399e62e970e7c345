// SPDX-License-Identifier: Apache-2.0
// Objective: what a model is trained for, after its last block: a loss, and what the model predicts.
#pragma once

#include "coeus/base/error.hpp"
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
    /// Only adds the scaled loss. This and predict() are called only for the first objective of a model.
    virtual void evaluate(Ctx&, Flow) const { throw LogicError("a further objective is only trained"); }
    /// Computes the model's predictions for each row of `in`, for generation and tests: the logits (acc) of a
    /// language model, [rows, V/P]. All tensor-parallel ranks pass the same rows.
    virtual void predict(Ctx&, Tensor, Flow) const {
        throw LogicError("a further objective is only trained");
    }
};

}  // namespace coeus
