// SPDX-License-Identifier: Apache-2.0
// Seed-OSS (ByteDance Seed team 2025): Llama with biases of queries, keys and
// values.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::seed_oss {

namespace {

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(
        config,
        {.attention = GroupedAttentionConfig{.kv_heads = 8, .head_dim = 128, .bias = AttentionBias::qkv},
         .rope = {.layout = RopeLayout::half_split},
         .norm_eps = 1e-6,
         .max_seq_len = 524288});
    keys.silu();
    keys.constant("mlp_bias", false, "biases are not implemented yet");
    keys.rope(config);
    AttentionBias& bias = config.grouped().bias;
    bool of_inputs = bias == AttentionBias::qkv || bias == AttentionBias::all,
         of_output = bias == AttentionBias::out || bias == AttentionBias::all;
    keys.truth("attention_bias", of_inputs);
    keys.truth("attention_out_bias", of_output);
    bias = of_inputs   ? of_output ? AttentionBias::all : AttentionBias::qkv
           : of_output ? AttentionBias::out
                       : AttentionBias::none;
}

DecoderConfig flavor(const FlavorSizes& sizes) {
    return with_sizes({.family = "seed_oss",
                       .attention = GroupedAttentionConfig{.bias = AttentionBias::qkv},
                       .rope = {.theta = 1e7, .layout = RopeLayout::half_split},
                       .norm_eps = 1e-6,
                       .max_seq_len = 524288},
                      sizes);
}

}  // namespace

}  // namespace coeus::seed_oss

namespace coeus {

ModelFamily seed_oss_family() {
    using namespace seed_oss;
    return {.name = "seed_oss",
            .flavors = {flavor({"debugmodel", 256, 6, 16, 8, 32, 768, 2048}),
                        flavor({"36B", 5120, 64, 80, 8, 128, 27648, 155136})},
            .architectures = {"SeedOssForCausalLM"},
            .model_types = {"seed_oss"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
