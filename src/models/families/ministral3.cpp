// SPDX-License-Identifier: Apache-2.0
// Ministral 3 (Mistral AI 2025): Llama with YaRN, and a temperature in all layers.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::ministral3 {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads, hidden, vocab;
    double theta;
    double original, factor;  // of YaRN: the length of rows before, and how many times longer they may be
    bool tied = false;
};

DecoderConfig flavor(const Row& row) {
    return {
        .family = "ministral3",
        .flavor = row.flavor,
        .dim = row.dim,
        .layers = row.layers,
        .vocab = row.vocab,
        .attention = GroupedAttentionConfig{.heads = row.heads,
                                            .kv_heads = row.kv_heads,
                                            .head_dim = row.dim > 1024 ? 128 : row.dim / row.heads,
                                            .temperature = {.scale = 0.1, .floor = row.original, .offset = 0},
                                            .temperature_everywhere = true},
        .feed_forward = {.hidden = row.hidden},
        .rope = {.theta = row.theta,
                 .scaling = YarnScaling{.factor = row.factor,
                                        .original_positions = row.original,
                                        .mscale = 1,
                                        .mscale_all_dim = 1},
                 .layout = RopeLayout::half_split},
        .tied = row.tied,
        .max_seq_len = int64_t(row.original * row.factor)};
}

// Which does not have the sizes of 8B, but its other numbers.
void hub_keys(HubKeys& keys, DecoderConfig& config) {
    DecoderConfig absent = flavor({"", 4096, 34, 32, 8, 14336, 131072, 1e6, 16384, 16});
    keys.usual(config, absent);
    keys.silu();
    keys.whole_rope_if_absent(config);
    keys.rope_and_temperature(config);
    keys.window(config, {.in_all_layers = true, .writes_lists = false});
}

}  // namespace

}  // namespace coeus::ministral3

namespace coeus {

ModelFamily ministral3_family() {
    using namespace ministral3;
    return {.name = "ministral3",
            .flavors = {flavor({"debugmodel", 256, 6, 16, 8, 768, 2048, 1e6, 512, 4}),
                        flavor({"3B", 3072, 26, 32, 8, 9216, 131072, 1e6, 16384, 16, true}),
                        flavor({"8B", 4096, 34, 32, 8, 14336, 131072, 1e6, 16384, 16}),
                        flavor({"14B", 5120, 40, 32, 8, 16384, 131072, 1e9, 16384, 16})},
            .architectures = {"Ministral3ForCausalLM"},
            .model_types = {"ministral3"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
