// SPDX-License-Identifier: Apache-2.0
// Mistral 7B (Jiang et al. 2023): Llama with a sliding window in every layer.
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"

namespace coeus::mistral {

namespace {

struct Row {
    const char* flavor;
    int64_t dim, layers, heads, kv_heads, hidden, vocab;
    double theta;
    int64_t window, max_seq_len;
};

void hub_keys(HubKeys& keys, DecoderConfig& config) {
    keys.usual(config, {.attention = GroupedAttentionConfig{.kv_heads = 8, .window = 4096},
                        .rope = {.layout = RopeLayout::half_split},
                        .norm_eps = 1e-6,
                        .max_seq_len = 131072});  // transformers' defaults
    keys.silu();
    keys.rope(config);
    keys.window(config, {.writes_lists = false});
}

}  // namespace

}  // namespace coeus::mistral

namespace coeus {

ModelFamily mistral_family() {
    using namespace mistral;
    ModelFamily family = {.name = "mistral",
                          .flavors = {},
                          .architectures = {"MistralForCausalLM"},
                          .model_types = {"mistral"},
                          .wrappers = {"Mistral3ForConditionalGeneration"},
                          .hub_keys = hub_keys,
                          .hub_places = usual_hub_places,
                          .hub_ignores = usually_ignored_in_hub,
                          .init = usual_init};
    const Row rows[] = {
        {"debugmodel", 256, 6, 16, 8, 768, 2048, 10000, 64, 2048},
        {"7B-v0.1", 4096, 32, 32, 8, 14336, 32000, 10000, 4096, 32768},
        {"7B-v0.3", 4096, 32, 32, 8, 14336, 32768, 1e6, 0, 32768},
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
                                                                      .window = row.window},
                                  .feed_forward = {.hidden = row.hidden},
                                  .rope = {.theta = row.theta, .layout = RopeLayout::half_split},
                                  .max_seq_len = row.max_seq_len});
    return family;
}

}  // namespace coeus
