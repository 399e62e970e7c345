// SPDX-License-Identifier: Apache-2.0
// FeedForward: a gated unit (Shazeer 2020), w2 (a(w1 x) * (w3 x)): SwiGLU with SiLU for a, GEGLU with GELU.
#pragma once

#include "coeus/layers/linear.hpp"
#include "coeus/layers/sublayer.hpp"

#include <memory>

namespace coeus {

/// a(gate) * up.
class GatedUnit : public Recomputable {
public:
    /// `gradient_groups`: one if the backward also finds the largest magnitudes of the gradients of gate and
    /// up; else none.
    explicit GatedUnit(Activation activation, Output output, ScaleGroups gradient_groups = ScaleGroups::none)
        : activation_(activation), output_(output), gradient_groups_(gradient_groups) {}
    /// gate_up [T, 2F] -> [T, F], kept or in temp.
    Tensor forward(Ctx& c, Tensor gate_up) const;
    /// The same, if only the weight's gradient needs it.
    Tensor rebuild(Ctx& c, Tensor gate_up) const;
    Tensor again(Ctx& c) const override;
    /// dy [T, F] -> gradient of gate_up, in the memory of gate_up.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    Tensor activate(Ctx& c, Tensor gate_up, Output output) const;
    Activation activation_;
    Output output_;
    ScaleGroups gradient_groups_;
};

class FeedForward : public Sublayer {
public:
    /// Each of P tensor-parallel ranks has F/P of the width F. `w13`: [w1; w3] stacked by rows, [2F/P, D].
    /// `w2`: [D, F/P]. `input`: the input of w13. `activated`: where the input of w2 goes.
    FeedForward(const LinearWeight& w13, const Storage& w2, LinearInput input = {},
                Output activated = Output::kept, Activation activation = Activation::silu)
        : unit_(std::make_unique<GatedUnit>(activation, activated, w13.groups_found_for_gradients())),
          w13_(w13, input),
          w2_(w2, LinearInput(activated, *unit_)) {}

    Tensor forward(Ctx& c, Tensor x, Tensor residual) const override;
    void rebuild(Ctx& c, Tensor x) const override;
    Tensor backward(Ctx& c, Tensor dy) const override;

private:
    std::unique_ptr<GatedUnit> unit_;
    ColLinear w13_;
    RowLinear w2_;
};

}  // namespace coeus
