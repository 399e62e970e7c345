// SPDX-License-Identifier: Apache-2.0
// Linear layers y = x W^T, perhaps with a bias, divided over P tensor-parallel ranks (Shoeybi et al. 2019).
// Several parameters that are stacked by rows make one GEMM. Outside the layers each rank has T/P of the T
// tokens (sequence_parallel.hpp).
//             weight of a rank    forward                            backward
//   ColLinear [O/P, I]            gathers x [T/P, I], y [T, O/P]     dx = sum over ranks, scattered
//   RowLinear [O, I/P]            y = sum over ranks, scattered      gathers dy [T/P, O], dx [T, I/P]
//   TokenLinear [O, I]            y [T/P, O] of x [T/P, I]           dx [T/P, I] of dy [T/P, O]
// If the weight has a recipe (kernels/quantization.hpp), the products take 8-bit operands, and what is
// gathered travels in 8 bits.
#pragma once

#include "coeus/layers/linear_weight.hpp"
#include "coeus/layers/recompute.hpp"

namespace coeus {

class ColLinear {
public:
    /// `bias`: [O/P], or null.
    explicit ColLinear(const LinearWeight& weight, LinearInput input = {}, const Storage* bias = nullptr)
        : weight_(weight), bias_(bias), input_(input) {}

    /// [T/P, I] -> [T, O/P], kept.
    Tensor forward(Ctx& c, Tensor x) const;
    /// dy [T, O/P] -> dx [T/P, I] in temp. The weight gradient goes through frame.later.
    Tensor backward(Ctx& c, Tensor dy) const;
    /// The same in two steps, between which a layer may compute something that needs no tensor-parallel
    /// ranks: recalls the input x, whose rows the weight gradient needs, and begins to gather them.
    Operand recall_input(Ctx& c) const;
    Tensor backward(Ctx& c, Tensor dy, Operand x) const;

private:
    LinearWeight weight_;
    const Storage* bias_;
    LinearInput input_;
};

class RowLinear {
public:
    /// `bias`: [O], on all ranks, or null.
    explicit RowLinear(const Storage& weight, LinearInput input = {}, const Storage* bias = nullptr)
        : weight_(weight, 0), bias_(bias), input_(input) {}

    /// [T, I/P] -> residual + y, [T/P, O], kept. The residual, which may be absent, is added in the GEMM.
    Tensor forward(Ctx& c, Tensor x, Tensor residual) const;
    /// Keeps what forward keeps for the backward without computing y, after x was recomputed.
    void rebuild(Ctx& c, Tensor x) const;
    /// dy [T/P, O] -> dx [T, I/P] in temp. The weight gradient goes through frame.later.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    WeightPart weight_;
    const Storage* bias_;
    LinearInput input_;
};

/// Every rank has the whole weight and applies it to its own tokens.
class TokenLinear {
public:
    /// `bias`: [O], or null.
    explicit TokenLinear(const LinearWeight& weight, LinearInput input = {}, const Storage* bias = nullptr)
        : TokenLinear(weight, 0, weight.cols(), input, bias) {}
    /// The same with the columns [first_col, first_col + cols) of a weight without a recipe.
    TokenLinear(const LinearWeight& weight, int64_t first_col, int64_t cols, LinearInput input = {},
                const Storage* bias = nullptr)
        : weight_(weight), bias_(bias), input_(input), first_col_(first_col), cols_(cols) {}

    /// [T/P, I] -> plus + y, [T/P, O] in `type`, which is that of x or acc; kept. `plus` is absent, or has
    /// the shape and type of y, which is then written there.
    Tensor forward(Ctx& c, Tensor x, Dtype type, Tensor plus = {}) const;
    /// dy [T/P, O] in the type of x -> dx [T/P, I] in temp. The weight gradient goes through frame.later.
    Tensor backward(Ctx& c, Tensor dy) const;

private:
    LinearWeight weight_;
    const Storage* bias_;
    LinearInput input_;
    int64_t first_col_, cols_;
};

}  // namespace coeus
