// SPDX-License-Identifier: Apache-2.0
// FeedForward: SwiGLU (Shazeer 2020), w2 (silu(w1 x) * (w3 x)).
#pragma once

#include "coeus/layers/linear.hpp"

namespace coeus {

class FeedForward {
public:
    /// `w13`: [w1; w3] by rows, [2F, D]; `w2`: [D, F].
    FeedForward(const Storage& w13, const Storage& w2) : w13_(w13), w2_(w2) {}

    /// [T, D] -> residual + feed-forward, [T, D], kept.
    Tensor forward(Ctx& c, Tensor x, Tensor residual) const;
    /// dy [T, D] -> gradient of x, [T, D], in temp.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    Linear w13_, w2_;
};

}  // namespace coeus
