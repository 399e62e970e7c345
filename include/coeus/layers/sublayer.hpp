// SPDX-License-Identifier: Apache-2.0
// Sublayer: the part between a norm and the residual path of a block: attention or a feed-forward layer.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class Sublayer {
public:
    virtual ~Sublayer() = default;
    /// x [T/P, D] (after the norm) -> residual + f(x), [T/P, D], kept.
    virtual Tensor forward(Ctx& c, Tensor x, Tensor residual) const = 0;
    /// Keeps what forward keeps for the backward, without computing its result.
    virtual void rebuild(Ctx& c, Tensor x) const = 0;
    /// dy [T/P, D] -> gradient of x, [T/P, D], in temp.
    virtual Tensor backward(Ctx& c, Tensor dy) const = 0;
};

}  // namespace coeus
