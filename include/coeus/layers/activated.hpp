// SPDX-License-Identifier: Apache-2.0
// Activated: an activation function of each element, between two linear layers.
#pragma once

#include "coeus/layers/recompute.hpp"

namespace coeus {

class Activated : public Recomputable {
public:
    /// `output`: kept, recomputed, or kept in 8 bits, without groups of scales.
    explicit Activated(Activation kind, Output output = Output::kept) : kind_(kind), output_(output) {}

    /// x [T, F], kept -> [T, F].
    Tensor forward(Ctx& c, Tensor x) const;
    Tensor again(Ctx& c) const override;
    /// Returns dx, in the memory of dy.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    Tensor compute(Ctx& c, Tensor x, const Output& output) const;
    Activation kind_;
    Output output_;
};

/// [attended | f(x)]: the results of attention beside those of a feed-forward layer's first matrix, as the
/// input of one matrix.
class BesideActivated : public Recomputable {
public:
    explicit BesideActivated(Activation kind, Output output = Output::kept) : kind_(kind), output_(output) {}

    /// attended [T, D], x [T, F], both kept -> [T, D + F].
    Tensor forward(Ctx& c, Tensor attended, Tensor x) const;
    Tensor again(Ctx& c) const override;
    /// dy [T, D + F]. Returns the gradient of `attended` as columns of dy, and overwrites x by its own.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    Tensor compute(Ctx& c, Tensor attended, Tensor x, const Output& output) const;
    Activation kind_;
    Output output_;
};

}  // namespace coeus
