// SPDX-License-Identifier: Apache-2.0
// Phi 3, 3.5 and 4 (Abdin et al. 2024): Llama whose folders have one tensor for queries, keys and values, and
// one for gate and up projection. Some have LongRoPE for longer rows, whose factors are in their folders, or
// rotate 3/4 of a head.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

#include <array>

namespace coeus::phi3 {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads, hidden, vocab;
    double theta;
    int64_t window, max_seq_len;
    bool tied = false;
    double rope_fraction = 1;
};

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
    ModelFamily family = {.name = "phi3",
                          .flavors = {},
                          .architectures = {"Phi3ForCausalLM"},
                          .model_types = {"phi3"},
                          .hub_keys = hub_keys,
                          .hub_places = hub_places,
                          .hub_ignores = usually_ignored_in_hub,
                          .init = usual_init};
    const Row rows[] = {
        {"debugmodel", 256, 6, 16, 8, 768, 2048, 10000, 64, 2048, false, 0.75},
        {"3-mini-4k", 3072, 32, 32, 32, 8192, 32064, 10000, 2047, 4096},
        {"3-medium-4k", 5120, 40, 40, 10, 17920, 32064, 10000, 2047, 4096},
        {"4-mini", 3072, 32, 24, 8, 8192, 200064, 10000, 0, 4096, true, 0.75},
        {"4", 5120, 40, 40, 10, 17920, 100352, 250000, 0, 16384},
    };
    for (const Row& row : rows)
        family.flavors.push_back({.family = family.name,
                                  .flavor = row.flavor,
                                  .dim = row.dim,
                                  .layers = row.layers,
                                  .vocab = row.vocab,
                                  .attention = GroupedAttentionConfig{.heads = row.heads,
                                                                      .kv_heads = row.kv_heads,
                                                                      .head_dim = row.dim / row.heads,
                                                                      .window = row.window,
                                                                      .rope_fraction = row.rope_fraction},
                                  .feed_forward = {.hidden = row.hidden},
                                  .rope = {.theta = row.theta, .layout = RopeLayout::half_split},
                                  .tied = row.tied,
                                  .max_seq_len = row.max_seq_len});
    return family;
}

}  // namespace coeus
