// SPDX-License-Identifier: Apache-2.0
// Sublayer: what stands between a norm and the residual path of a block: attention, a feed-forward layer.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class Sublayer {
public:
    virtual ~Sublayer() = default;
    /// x [T/P, D], normed -> residual + f(x), [T/P, D], kept.
    virtual Tensor forward(Ctx& c, Tensor x, Tensor residual) const = 0;
    /// What forward leaves for the backward, without its result.
    virtual void rebuild(Ctx& c, Tensor x) const = 0;
    /// dy [T/P, D] -> gradient of x, [T/P, D], in temp.
    virtual Tensor backward(Ctx& c, Tensor dy) const = 0;
};

}  // namespace coeus
