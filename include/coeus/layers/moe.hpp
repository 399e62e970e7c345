// SPDX-License-Identifier: Apache-2.0
// Moe: a mixture of experts (Shazeer et al. 2017): a router sends each token to k of E feed-forward layers,
// and adds their results by its weights. Some layers have shared experts as well: a feed-forward layer that
// processes every token (DeepSeek-AI 2024, DeepSeekMoE).
//
// P tensor-parallel ranks route their own T/P tokens.
#pragma once

#include "coeus/layers/experts.hpp"
#include "coeus/layers/linear.hpp"
#include "coeus/layers/sublayer.hpp"

#include <memory>

namespace coeus {

/// The loss that balances the experts within each sequence.
struct SequenceBalance {
    double coefficient = 0;  ///< alpha; 0: none
    size_t part = 0;         ///< its number among the parts of the loss (StepScalars::losses)
};

class Router {
public:
    /// `gate`: [E, D]. `bias`: acc [E], added to the scores for the choice alone, or null. `row`: the layer's
    /// row of Ctx::counts.
    Router(const TokenLinear& gate, const Storage* bias, const RouteOptions& options, int64_t row,
           SequenceBalance balance = {})
        : gate_(gate), bias_(bias), options_(options), row_(row), balance_(balance) {}

    /// Computes the logits of x [T/P, D], kept.
    Tensor logits(Ctx& c, Tensor x) const;
    /// What is chosen for each token, kept, and the logits.
    struct Choice : Routed {
        Tensor logits;
    };
    Choice choose(Ctx& c, Tensor logits) const;
    /// Pushes and pops what the backward needs.
    void push(Ctx& c, const Choice& choice) const;
    Choice pop(Ctx& c) const;
    /// dweights (acc) -> gradient of the logits, in `type`, in temp. If there is a loss that balances
    /// sequences, adds its gradient, and the loss itself to its part of scalars.losses.
    Tensor choose_backward(Ctx& c, const Choice& choice, Tensor dweights, Dtype type) const;
    /// The gradient of x, [T/P, D], in temp.
    Tensor logits_backward(Ctx& c, Tensor dlogits) const { return gate_.backward(c, dlogits); }

private:
    void balance_sequences(Ctx& c, Tensor dlogits, const Choice& choice) const;
    TokenLinear gate_;
    const Storage* bias_;
    RouteOptions options_;
    int64_t row_;
    SequenceBalance balance_;
};

class Moe : public Sublayer {
public:
    /// `shared` may be null. The router, and the shared experts if there are any, take their input from the
    /// same LinearInput.
    Moe(const Router& router, std::unique_ptr<Experts> experts, std::unique_ptr<Sublayer> shared)
        : router_(router), experts_(std::move(experts)), shared_(std::move(shared)) {}

    Tensor forward(Ctx& c, Tensor x, Tensor residual) const override;
    void rebuild(Ctx& c, Tensor x) const override;
    Tensor backward(Ctx& c, Tensor dy) const override;

private:
    Router router_;
    std::unique_ptr<Experts> experts_;
    std::unique_ptr<Sublayer> shared_;
};

}  // namespace coeus
