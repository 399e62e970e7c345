// SPDX-License-Identifier: Apache-2.0
// FluxHead: the last layer of Flux, which predicts noise minus latents for each patch, and its loss (Liu et
// al. 2022, rectified flow; Black Forest Labs 2024).
#pragma once

#include "coeus/layers/image_streams.hpp"
#include "coeus/layers/modulated_norm.hpp"
#include "coeus/layers/objective.hpp"

namespace coeus {

/// prediction = W mod(x) + b of the rows that are patches; the loss is the weighted sum of (prediction -
/// target)^2. A flow {x [S (T + P), D] in sample order, cond [S, D] (acc)}.
class FluxHead : public Objective {
public:
    struct Weights {
        const Storage &modulation, &modulation_bias;  ///< [2 D, D]: shift, scale
        const Storage &linear, &linear_bias;          ///< [p, D]
    };
    FluxHead(const Weights& weights, double norm_eps, Output normed);
    FluxHead(const FluxHead&) = delete;
    FluxHead& operator=(const FluxHead&) = delete;

    void forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c) const override;
    void evaluate(Ctx& c, Flow in) const override;
    /// out [S P, p] (acc).
    void predict(Ctx& c, Tensor out, Flow in) const override;

private:
    Tensor prediction(Ctx& c, const Flow& in) const;
    void add_loss(Ctx& c, Tensor dprediction, Tensor prediction) const;
    Modulation modulation_;
    ModulatedNorm norm_;
    TokenLinear linear_;
};

}  // namespace coeus
