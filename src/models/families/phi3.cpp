// SPDX-License-Identifier: Apache-2.0
// Phi 3, 3.5 and 4 (Abdin et al. 2024): Llama whose folders have one tensor for queries, keys and values, and
// one for gate and up projection. Some have LongRoPE for longer rows, whose factors are in their folders, or
// rotate 3/4 of a head.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <array>

namespace coeus::phi3 {

namespace {

struct Positions {
    double theta = 10000;
    int64_t window = 0, max_seq_len = 4096;
    double fraction = 1;
    RopeScaling scaling = {};
};

DecoderConfig flavor(const FlavorSizes& sizes, const Positions& positions, bool tied = false) {
    return with_sizes(
        {.family = "phi3",
         .attention = GroupedAttentionConfig{.window = positions.window, .rope_fraction = positions.fraction},
         .rope = {positions.theta, positions.scaling, RopeLayout::half_split},
         .tied = tied,
         .max_seq_len = positions.max_seq_len},
        sizes);
}

// The numbers of config.json of 4-mini.
const LongRopeScaling four_mini_scaling = {
    .short_factor = std::vector<double>(48, 1),
    .long_factor = {1,           1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897,  1.956131817,
                    2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023,
                    4.785517845, 5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372,
                    10.4687158,  11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807,
                    22.90118105, 25.61086418, 28.64115884, 32.03,       32.1,        32.13,       32.23,
                    32.6,        32.61,       32.64,       32.66,       32.7,        32.71,       32.93,
                    32.97,       33.28,       33.49,       33.5,        44.16,       47.77},
    .factor = 32};

// LongRoPE has a length of its own. The class has a default of it, which no folder means.
void original_length(HubKeys& keys, const DecoderConfig& config) {
    constexpr const char* key = "original_max_position_embeddings";
    const auto* scaling = std::get_if<LongRopeScaling>(&config.rope.scaling);
    keys.write(key, scaling ? int64_t(scaling->original_positions) : config.max_seq_len);
    if (!keys.reads()) return;
    if (scaling) keys.json()[key].number();
    if (!scaling && config.rope.scaling != RopeScaling{})
        throw ConfigError(
            "{}: RoPE must be of type \"default\" or \"longrope\" (the architecture has no other)",
            keys.json().file());
}

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    // transformers' defaults
    keys.usual(
        config,
        {.feed_forward = {.hidden = 8192}, .rope = {.layout = RopeLayout::half_split}, .max_seq_len = 4096});
    keys.silu();
    for (const char* bias : {"attention_bias", "mlp_bias", "lm_head_bias"})
        keys.constant(bias, false, "the architecture has none");
    keys.rope_fraction(config);
    keys.rope(config);
    original_length(keys, config);
    keys.window(config, {.in_all_layers = true, .writes_lists = false});
    // transformers' default is a token that smaller vocabularies do not have
    if (config.vocab <= 32000) keys.write("pad_token_id", {});
    keys.idle({"full_attn_mod", "interpolate_factor"});
}

std::vector<HubPlace> hub_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    const std::array stacks = {qkv_hub_stack(config), gate_up_hub_stack(config)};
    std::vector<HubPlace> places = places_in(stacks, parameter, shape);
    return places.empty() ? usual_hub_places(parameter, shape, config) : places;
}

}  // namespace

}  // namespace coeus::phi3

namespace coeus {

ModelFamily phi3_family() {
    using namespace phi3;
    return {
        .name = "phi3",
        .flavors =
            {flavor({"debugmodel", 256, 6, 16, 8, 16, 768, 2048},
                    {.window = 64, .max_seq_len = 2048, .fraction = 0.75}),
             flavor({"3-mini-4k", 3072, 32, 32, 32, 96, 8192, 32064}, {.window = 2047}),
             flavor({"3-medium-4k", 5120, 40, 40, 10, 128, 17920, 32064}, {.window = 2047}),
             flavor({"4-mini", 3072, 32, 24, 8, 128, 8192, 200064}, {.fraction = 0.75}, true),
             flavor({"4-mini-128k", 3072, 32, 24, 8, 128, 8192, 200064},
                    {.window = 262144, .max_seq_len = 131072, .fraction = 0.75, .scaling = four_mini_scaling},
                    true),
             flavor({"4", 5120, 40, 40, 10, 128, 17920, 100352}, {.theta = 250000, .max_seq_len = 16384})},
        .architectures = {"Phi3ForCausalLM"},
        .model_types = {"phi3"},
        .hub_keys = hub_keys,
        .hub_places = hub_places,
        .hub_ignores = usually_ignored_in_hub,
        .init = usual_init};
}

}  // namespace coeus
