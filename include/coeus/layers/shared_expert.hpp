// SPDX-License-Identifier: Apache-2.0
// SharedExpert: the feed-forward layer of all tokens in a mixture of experts, whose result each token
// multiplies by a number of its own, sigmoid(g . x) (Qwen 1.5 MoE, Bai et al. 2024). As with routed experts,
// the number multiplies the activation [T, F/P] instead of the result, so that neither it nor its gradient
// needs a pass of its own over [T, D].
#pragma once

#include "coeus/layers/linear.hpp"
#include "coeus/layers/sublayer.hpp"

#include <memory>

namespace coeus {

/// weight * a(gate) * up, with a weight for each row.
class WeightedUnit : public Recomputable {
public:
    WeightedUnit(Activation activation, Output output)
        : gate_{.activation = activation}, output_(output.place) {}
    /// gate_up [T, 2F], weights [T, 1] (acc), both kept -> [T, F], kept or in temp.
    Tensor forward(Ctx& c, Tensor gate_up, Tensor weights) const;
    Tensor again(Ctx& c) const override;
    /// dy [T, F] -> the gradient of gate_up, in its memory. dweights [T, 1] (acc) is overwritten.
    Tensor backward(Ctx& c, Tensor dweights, Tensor dy) const;

private:
    Gate gate_;
    Output::Place output_;
};

class SharedExpert : public Sublayer {
public:
    /// `gate`: [1, D], whole on each of P tensor-parallel ranks. The rest as for FeedForward. The gate and
    /// w13 take their input from the same LinearInput.
    SharedExpert(const TokenLinear& gate, const LinearWeight& w13, const Storage& w2, LinearInput input,
                 Output activated, Activation activation)
        : gate_(gate),
          unit_(std::make_unique<WeightedUnit>(activation, activated)),
          w13_(w13, input),
          w2_(w2, LinearInput(Output(activated.place), *unit_)) {}

    Tensor forward(Ctx& c, Tensor x, Tensor residual) const override;
    void rebuild(Ctx& c, Tensor x) const override;
    Tensor backward(Ctx& c, Tensor dy) const override;

private:
    Tensor activated(Ctx& c, Tensor x) const;
    TokenLinear gate_;
    std::unique_ptr<WeightedUnit> unit_;
    ColLinear w13_;
    RowLinear w2_;
};

}  // namespace coeus
