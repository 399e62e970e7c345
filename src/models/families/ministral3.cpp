// SPDX-License-Identifier: Apache-2.0
// Ministral 3 (Mistral AI 2025): Llama with YaRN, and a temperature in all layers.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::ministral3 {

namespace {

struct Positions {
    double theta, original,
        factor;  // of YaRN: the length of rows before, and how many times longer they may be
};

DecoderConfig flavor(const FlavorSizes& sizes, const Positions& positions, bool tied = false) {
    const double original = positions.original, factor = positions.factor;
    return with_sizes(
        {.family = "ministral3",
         .attention = GroupedAttentionConfig{.temperature = {.scale = 0.1, .floor = original, .offset = 0},
                                             .temperature_everywhere = true},
         .rope = {.theta = positions.theta,
                  .scaling =
                      YarnScaling{
                          .factor = factor, .original_positions = original, .mscale = 1, .mscale_all_dim = 1},
                  .layout = RopeLayout::half_split},
         .tied = tied,
         .max_seq_len = int64_t(original * factor)},
        sizes);
}

// Which does not have the sizes of 8B, but its other numbers.
void hub_keys(HubKeys& keys, DecoderConfig& config) {
    keys.usual(config, flavor({"", 4096, 34, 32, 8, 128, 14336, 131072}, {1e6, 16384, 16}));
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
            .flavors = {flavor({"debugmodel", 256, 6, 16, 8, 16, 768, 2048}, {1e6, 512, 4}),
                        flavor({"3B", 3072, 26, 32, 8, 128, 9216, 131072}, {1e6, 16384, 16}, true),
                        flavor({"8B", 4096, 34, 32, 8, 128, 14336, 131072}, {1e6, 16384, 16}),
                        flavor({"14B", 5120, 40, 32, 8, 128, 16384, 131072}, {1e9, 16384, 16})},
            .architectures = {"Ministral3ForCausalLM"},
            .model_types = {"ministral3"},
            .hub_keys = hub_keys,
            .hub_places = usual_hub_places,
            .hub_ignores = usually_ignored_in_hub,
            .init = usual_init};
}

}  // namespace coeus
