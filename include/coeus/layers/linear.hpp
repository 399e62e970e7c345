// SPDX-License-Identifier: Apache-2.0
// Linear: y = x W^T (+ residual), W[O, I] without bias; several parameters stacked by rows make one GEMM.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

class Linear {
public:
    explicit Linear(const Storage& weight) : weight_(&weight) {}

    /// [T, I] -> [T, O], kept. `residual` [T, O] is added in the GEMM; absent: nothing is.
    Tensor forward(Ctx& c, Tensor x, Tensor residual = {}) const;
    /// dy [T, O] -> dx [T, I] in temp; the weight gradient goes through frame.later.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    const Storage* weight_;
};

}  // namespace coeus
