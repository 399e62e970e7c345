// SPDX-License-Identifier: Apache-2.0
// DoubleStream: a block of Flux in which text and patches have matrices of their own, but attend to each
// other (Esser et al. 2024, MM-DiT; Black Forest Labs 2024, Flux).
#pragma once

#include "coeus/layers/activated.hpp"
#include "coeus/layers/image_streams.hpp"
#include "coeus/layers/modulated_norm.hpp"

namespace coeus {

/// The layers of one stream. R rows of the stream, D = H d, F the inner width of the feed-forward layer.
///   raw = Wqkv mod(x) + b;   a = attention;   x' = x + gate (Wproj a + b);   out = x' + gate (W2 gelu(W1
///   mod(x') + b)
///   + b)
class StreamLayers {
public:
    struct Weights {
        const Storage &modulation, &modulation_bias;  ///< [6 D, D]: shift, scale, gate; and again
        const Storage &qkv, &qkv_bias;                ///< [3 D, D]
        const Storage &q_norm, &k_norm;               ///< [d]
        const Storage &proj, &proj_bias;              ///< [D, D]
        const Storage &mlp_in, &mlp_in_bias;          ///< [F, D]
        const Storage &mlp_out, &mlp_out_bias;        ///< [D, F]
    };
    /// Where the inputs of the matrices go that norms and the activation make.
    struct Outputs {
        Output normed, normed_for_mlp, activated;
    };
    StreamLayers(const Weights& weights, const StreamSizes& sizes, const Outputs& outputs);
    StreamLayers(const StreamLayers&) = delete;
    StreamLayers& operator=(const StreamLayers&) = delete;

    /// What comes before attention: modulations [S, 6 D] and raw queries, keys and values [R, 3 D], both
    /// kept.
    struct Kept {
        Tensor modulations, raw;
    };
    Kept before_attention(Ctx& c, Tensor x, Tensor cond) const;
    /// Writes normed queries and keys, and the values, to `joined` [R, 3 D].
    void norm_heads(Ctx& c, Tensor joined, Tensor raw) const;
    /// What comes after it. `attended` [R, D], kept. Writes the block's result to `out`; absent: only keeps
    /// what the backward needs.
    void after_attention(Ctx& c, Tensor out, Tensor x, Tensor attended, Tensor modulations) const;

    /// The backwards in reverse order. dx: the gradient of the result, which becomes that of x, at last. dm
    /// [S, 6 D] (acc) gets the gradients of the modulations.
    void backward_after(Ctx& c, Tensor dattended, Tensor dx, Tensor dm) const;
    /// raw becomes its own gradient.
    void norm_heads_backward(Ctx& c, Tensor raw, Tensor djoined) const;
    void backward_before(Ctx& c, Tensor dx, Tensor draw, Tensor dm, Tensor dcond) const;

private:
    Tensor part(Tensor modulations, int64_t number) const;
    int64_t width_;
    Modulation modulation_;
    ModulatedNorm norm_, norm_for_mlp_;
    Activated gelu_;
    TokenLinear qkv_, proj_, mlp_in_, mlp_out_;
    std::unique_ptr<NormHeads> heads_;
    GatedSum after_attention_, after_mlp_;
};

/// A flow {x [S (T + P), D] in stream order, cond [S, D] (acc)}; cond passes through.
class DoubleStream : public Block {
public:
    /// The table must outlive the block.
    DoubleStream(std::unique_ptr<StreamLayers> text, std::unique_ptr<StreamLayers> patches,
                 const StreamSizes& sizes, const RopeTable& table)
        : text_(std::move(text)),
          patches_(std::move(patches)),
          sizes_(sizes),
          rotation_(rotation_of_heads(sizes, table)) {}

    Flow forward(Ctx& c, Flow in) const override;
    void rebuild(Ctx& c, Flow in) const override;
    Flow backward(Ctx& c, Flow dout) const override;

private:
    void compute(Ctx& c, const Flow& in, Tensor out) const;
    Tensor rotated(Ctx& c, Tensor text_raw, Tensor patches_raw) const;
    AttentionTensors tensors(const Batch& batch, Tensor samples, Tensor out, Tensor lse) const;
    std::unique_ptr<StreamLayers> text_, patches_;
    StreamSizes sizes_;
    std::unique_ptr<RotateHeads> rotation_;
};

}  // namespace coeus
