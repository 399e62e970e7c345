// SPDX-License-Identifier: Apache-2.0
// FluxInput: the first block of Flux. It makes the two streams of encoded images and texts, and the
// conditioning of each sample by its time and its pooled text (Esser et al. 2024; Black Forest Labs 2024).
#pragma once

#include "coeus/layers/activated.hpp"
#include "coeus/layers/block.hpp"
#include "coeus/layers/linear.hpp"

#include <memory>
#include <vector>

namespace coeus {

/// W2 silu(W1 x + b) + b: the embedding of what is known of each sample.
class SampleEmbedding {
public:
    struct Weights {
        const Storage &in, &in_bias, &out, &out_bias;  ///< [D, I], [D], [D, D], [D]
    };
    explicit SampleEmbedding(const Weights& w)
        : in_(w.in, {}, &w.in_bias), silu_(Activation::silu), out_(w.out, {}, &w.out_bias) {}

    /// x [S, I] -> plus + y [S, D] (acc), kept. `plus` may be absent.
    Tensor forward(Ctx& c, Tensor x, Tensor plus) const;
    /// dy [S, D] in the type of x. The input needs no gradient.
    void backward(Ctx& c, Tensor dy) const;

private:
    TokenLinear in_;
    Activated silu_;
    TokenLinear out_;
};

/// {x, cond}: x = [W text + b; W noisy + b] in stream order [S (T + P), D], and cond = silu(sum of the
/// embeddings) [S, D] (acc). All uses of the conditioning apply SiLU to it, so it is applied here.
class FluxInput : public Block {
public:
    struct Weights {
        const Storage &patches, &patches_bias;  ///< [D, p]
        SampleEmbedding::Weights time, pooled;
        std::vector<SampleEmbedding::Weights> guidance;  ///< one, or none
        const Storage &text, &text_bias;                 ///< [D, c]
    };
    explicit FluxInput(const Weights& weights);

    Flow forward(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;

private:
    TokenLinear text_, patches_;
    std::vector<std::unique_ptr<SampleEmbedding>> embeddings_;  // of time, pooled text, guidance
};

}  // namespace coeus
