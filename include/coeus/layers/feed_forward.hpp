// SPDX-License-Identifier: Apache-2.0
// FeedForward: SwiGLU (Shazeer 2020), w2 (silu(w1 x) * (w3 x)).
#pragma once

#include "coeus/layers/linear.hpp"

namespace coeus {

class FeedForward {
public:
    /// Of P tensor-parallel ranks each has F/P of the width. `w13`: [w1; w3] by rows, [2F/P, D]; `w2`: [D,
    /// F/P].
    FeedForward(const Storage& w13, const Storage& w2) : w13_(w13), w2_(w2) {}

    /// [T/P, D] -> residual + feed-forward, [T/P, D], kept.
    Tensor forward(Ctx& c, Tensor x, Tensor residual) const;
    /// dy [T/P, D] -> gradient of x, [T/P, D], in temp.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    ColLinear w13_;
    RowLinear w2_;
};

}  // namespace coeus
