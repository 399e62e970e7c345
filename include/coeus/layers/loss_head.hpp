// SPDX-License-Identifier: Apache-2.0
// LossHead: final norm, output projection and cross entropy, in chunks of tokens: the logits [T, V] never
// exist whole, and their gradient overwrites them. Losses are scaled by 1/(valid tokens of the step) in the
// kernel, so that every later reduction is a plain sum.
//
// Tensor-parallel ranks have V/P columns of the logits of all T tokens; they exchange two numbers a token
// (loss parallel, Shoeybi et al. 2019, section 3), and each knows the whole loss.
#pragma once

#include "coeus/layers/norm.hpp"

namespace coeus {

class LossHead {
public:
    /// `norm`: may put its output into temp, since no backward needs it. `output`: [V/P, D]; the embedding's
    /// table where they are tied.
    LossHead(std::unique_ptr<Norm> norm, const Storage& output) : norm_(std::move(norm)), output_(&output) {}

    /// Adds the scaled loss of x [T/P, D] to scalars.loss. The gradients of the logits are used at once,
    /// since they are not kept: the weight gradient is added and the gradient of the normed x is kept for
    /// backward().
    void forward(Ctx& c, Tensor x) const;
    /// -> gradient of x, [T/P, D].
    Tensor backward(Ctx& c) const;
    /// Adds the scaled loss only.
    void evaluate(Ctx& c, Tensor x) const;
    /// logits [rows of x, V] (acc); one rank alone.
    void logits(Ctx& c, Tensor logits, Tensor x) const;

private:
    template <class Each>
    void for_each_chunk(Ctx& c, Tensor normed, const Each& each) const;
    void losses_of(Ctx& c, Tensor losses, Tensor dlogits, Tensor logits, Tensor labels) const;
    std::unique_ptr<Norm> norm_;
    const Storage* output_;
};

}  // namespace coeus
