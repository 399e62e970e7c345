// SPDX-License-Identifier: Apache-2.0
// Attention with random weights and everything that a family may add to it, for tests of values and
// gradients.
#pragma once

#include "coeus/layers/attention.hpp"
#include "coeus/layers/latent_attention.hpp"
#include "unit/layers/checked_layers.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coeus::test {

/// The epsilon of the norms of heads and of latents.
inline constexpr double heads_eps = 0.05;

/// Norms of heads: none, before RoPE with weights, after RoPE without, without RoPE, or of all heads before
/// RoPE.
enum class HeadNorm { none, first, last, only, of_all };
/// What some families add to attention.
struct Extra {
    RopeLayout layout = RopeLayout::interleaved;
    HeadNorm norm = HeadNorm::none;
    bool biases = false, sinks = false;
    Temperature temperature = {};
    int64_t rotated = 0;  ///< columns of a head that RoPE rotates; 0: all
};

struct AttentionLayer {
    RopeTable rope;
    TemperatureTable temperature;
    Attention attention;

    AttentionLayer(Parameters& parameters, const AttentionHeads& config, int64_t width, int64_t positions,
                   const Extra& extra)
        : rope(positions, extra.rotated > 0 ? extra.rotated : config.head_dim, 100, {}, Dtype::f64),
          temperature(positions, extra.temperature, Dtype::f64),
          attention(make(parameters, config, width, extra)) {
        rope.allocate();
        temperature.allocate();
    }

private:
    static const Storage* vector(Parameters& parameters, const std::string& name, int64_t size) {
        return &parameters.add(norm_weight(name, size));
    }
    Attention make(Parameters& parameters, const AttentionHeads& config, int64_t width, const Extra& extra) {
        const Storage& wqkv =
            parameters.add({weight("wq", config.query_cols(), width), weight("wk", config.key_cols(), width),
                            weight("wv", config.value_cols(), width)});
        const Storage& wo = parameters.add(weight("wo", width, config.heads * config.value_width()));
        HeadSteps::List steps;
        const auto rotate = [&] {
            steps.push_back(std::make_unique<RotateHeads>(
                rope,
                RopeShape{.head_dim = config.head_dim, .width = rope.view().cols(), .layout = extra.layout}));
        };
        if (extra.norm == HeadNorm::last) rotate();
        if (extra.norm == HeadNorm::first) {
            const Storage *q = vector(parameters, "q_norm", config.head_dim),
                          *k = vector(parameters, "k_norm", config.head_dim);
            steps.push_back(std::make_unique<NormHeads>(q, k, config.heads, config.head_dim, heads_eps));
        } else if (extra.norm == HeadNorm::of_all) {
            const Storage *q = vector(parameters, "q_norm", config.query_cols()),
                          *k = vector(parameters, "k_norm", config.key_cols());
            steps.push_back(std::make_unique<NormAllHeads>(*q, *k, NormForm(heads_eps, 1)));
        } else if (extra.norm != HeadNorm::none) {
            steps.push_back(
                std::make_unique<NormHeads>(nullptr, nullptr, config.heads, config.head_dim, heads_eps));
        }
        if (extra.norm != HeadNorm::last && extra.norm != HeadNorm::only) rotate();
        if (extra.temperature)
            steps.push_back(std::make_unique<ScaleQueries>(temperature, config.query_cols()));
        const int64_t rows = config.query_cols() + config.key_cols() + config.value_cols();
        return Attention(ColLinear(wqkv, {}, extra.biases ? vector(parameters, "wqkv bias", rows) : nullptr),
                         RowLinear(wo, {}, extra.biases ? vector(parameters, "wo bias", width) : nullptr),
                         config, std::move(steps),
                         extra.sinks ? vector(parameters, "sinks", config.heads) : nullptr);
    }
};

struct LatentLayer {
    RopeTable rope;
    std::unique_ptr<Norm> norm;
    LatentAttention attention;

    // The input is a norm's output, which is kept or computed again.
    LatentLayer(Parameters& parameters, const LatentHeads& heads, int64_t width, int64_t positions,
                Output output)
        : rope(positions, heads.shape.rope, 100, {}, Dtype::f64),
          norm(make_norm(parameters, "norm.weight", width, NormKind::rms, output)),
          attention(make(parameters, heads, width, output)) {
        rope.allocate();
    }

private:
    LatentAttention make(Parameters& parameters, const LatentHeads& h, int64_t width, Output output) {
        const LatentShape& s = h.shape;
        const LinearInput input(output.place == Output::recomputed ? norm.get() : nullptr);
        const bool has_q_latents = h.q_rank > 0;
        std::vector<Param> down;
        if (has_q_latents) down.push_back(weight("wq_a", h.q_rank, width));
        down.push_back(weight("wkv_a", h.kv_rank + s.rope, width));
        const Storage& first = parameters.add(std::move(down));
        const auto vector = [&](const char* name, int64_t size) {
            return &parameters.add(norm_weight(name, size));
        };
        const Storage &q = parameters.add(
                          weight("wq", s.heads * (s.nope + s.rope), has_q_latents ? h.q_rank : width)),
                      &kv = parameters.add(weight("wkv_b", s.heads * (s.nope + s.value), h.kv_rank)),
                      &wo = parameters.add(weight("wo", width, s.heads * s.value));
        return LatentAttention({.down = TokenLinear(first, input),
                                .q_norm = has_q_latents ? vector("q_norm", h.q_rank) : nullptr,
                                .kv_norm = vector("kv_norm", h.kv_rank),
                                .q = has_q_latents ? ColLinear(q) : ColLinear(q, input),
                                .kv = ColLinear(kv),
                                .wo = RowLinear(wo)},
                               rope, h);
    }
};

}  // namespace coeus::test
