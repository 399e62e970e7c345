// SPDX-License-Identifier: Apache-2.0
// SingleStream: a block of Flux in which text and patches share their matrices, with attention and the
// feed-forward layer side by side (Dehghani et al. 2023; Black Forest Labs 2024, Flux).
#pragma once

#include "coeus/layers/activated.hpp"
#include "coeus/layers/image_streams.hpp"
#include "coeus/layers/modulated_norm.hpp"

namespace coeus {

/// y = W1 mod(x) + b;   out = x + gate (W2 [attention of y's first 3 D columns | gelu of the others] + b).
/// A flow {x [S (T + P), D] in sample order, cond [S, D] (acc)}; cond passes through.
class SingleStream : public Block {
public:
    struct Weights {
        const Storage &modulation, &modulation_bias;  ///< [3 D, D]: shift, scale, gate
        const Storage &linear1, &linear1_bias;        ///< [3 D + F, D]
        const Storage &linear2, &linear2_bias;        ///< [D, D + F]
        const Storage &q_norm, &k_norm;               ///< [d]
    };
    struct Outputs {
        Output normed, activated;
    };
    /// The table must outlive the block.
    SingleStream(const Weights& weights, const StreamSizes& sizes, const RopeTable& table,
                 const Outputs& outputs);
    SingleStream(const SingleStream&) = delete;
    SingleStream& operator=(const SingleStream&) = delete;

    Flow forward(Ctx& c, Flow in) const override;
    void rebuild(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;

private:
    /// The result of W2, and the modulations.
    struct Computed {
        Tensor result, modulations;
    };
    Computed compute(Ctx& c, const Flow& in) const;
    Tensor part(Tensor modulations, int64_t number) const;
    StreamSizes sizes_;
    Modulation modulation_;
    ModulatedNorm norm_;
    BesideActivated gelu_;
    TokenLinear linear1_, linear2_;
    HeadSteps steps_;
    GatedSum sum_;
};

}  // namespace coeus
