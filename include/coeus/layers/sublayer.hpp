// SPDX-License-Identifier: Apache-2.0
// Sublayer: attention or a feed-forward layer, whose result a block adds to the residual path.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class Sublayer {
public:
    virtual ~Sublayer() = default;
    /// Returns residual + f(x) [T/P, D], kept, or f(x) if the residual is absent. x: [T/P, D].
    virtual Tensor forward(Ctx& c, Tensor x, Tensor residual) const = 0;
    /// Keeps what forward keeps for the backward, without computing its result.
    virtual void rebuild(Ctx& c, Tensor x) const = 0;
    /// Returns the gradient of x [T/P, D], in temp, for dy [T/P, D].
    virtual Tensor backward(Ctx& c, Tensor dy) const = 0;
};

}  // namespace coeus
