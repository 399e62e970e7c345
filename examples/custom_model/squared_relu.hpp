// SPDX-License-Identifier: Apache-2.0
// A feed-forward layer with squared ReLU in place of SwiGLU: w2 max(0, w1 x)^2 (So et al. 2021, Primer).
#pragma once

#include "coeus/layers/linear.hpp"
#include "coeus/layers/map_elements.hpp"
#include "coeus/layers/sublayer.hpp"

namespace primer {

using namespace coeus;

/// Keeps only its input. The linear layer after it asks for the output again when it needs it.
class SquaredRelu : public Recomputable {
public:
    /// x [T, F/P], kept -> [T, F/P] in temp.
    Tensor forward(Ctx& c, Tensor x) const {
        c.frame.push(this, x);
        return again(c);
    }
    Tensor again(Ctx& c) const override {
        const Tensor x = c.frame.pop(this), y = c.temp.alloc(x.dtype, x.shape);
        map_elements(
            c, "squared_relu", y, [](auto v) { return v > 0 ? v * v : 0; }, x);
        c.frame.push(this, x);
        return y;
    }
    /// dy -> gradient of x, in the memory of x.
    Tensor backward(Ctx& c, Tensor dy) const {
        const Tensor x = c.frame.pop(this);
        map_elements(
            c, "squared_relu_backward", x, [](auto v, auto d) { return v > 0 ? 2 * v * d : 0; }, x, dy);
        return x;
    }
};

/// P tensor-parallel ranks divide the width: w1 [F/P, D], w2 [D, F/P].
class SquaredReluLayer : public Sublayer {
public:
    SquaredReluLayer(const Storage& w1, const Storage& w2, LinearInput input)
        : w1_(w1, input), w2_(w2, &relu_) {}
    SquaredReluLayer(const SquaredReluLayer&) = delete;
    SquaredReluLayer& operator=(const SquaredReluLayer&) = delete;

    Tensor forward(Ctx& c, Tensor x, Tensor residual) const override {
        return w2_.forward(c, relu_.forward(c, w1_.forward(c, x)), residual);
    }
    void rebuild(Ctx& c, Tensor x) const override { w2_.rebuild(c, relu_.forward(c, w1_.forward(c, x))); }
    Tensor backward(Ctx& c, Tensor dy) const override {
        return w1_.backward(c, relu_.backward(c, w2_.backward(c, dy)));
    }

private:
    SquaredRelu relu_;
    ColLinear w1_;
    RowLinear w2_;
};

}  // namespace primer
