// SPDX-License-Identifier: Apache-2.0
// Families whose norms are at other places than Llama's: OLMo 2 and 3, OLMoE, EXAONE 4, GLM-4.
#include "coeus/models/config_fields.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <array>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

DecoderConfig read_twice(const TemporaryFolder& folder, const std::string& body) {
    const DecoderConfig m = model_from_hub(config_folder(folder, body));
    CHECK(read_hub_model(folder.path()).unknown_keys == std::vector<std::string>());
    write_json(hub_config_of(m), folder / "config.json");
    CHECK(model_from_hub(folder.path()) == m);
    CHECK(read_hub_model(folder.path()).unknown_keys == std::vector<std::string>());
    return m;
}

// "w" for each layer with a window, "r" with RoPE, "b" with both, "-" with neither.
std::string windows_and_ropes(const DecoderConfig& m) {
    std::string layers;
    for (int64_t i = 0; i < m.layers; ++i) {
        const GroupedAttentionConfig a = m.layer(i).grouped();
        layers += a.window > 0 ? (a.rope ? 'b' : 'w') : (a.rope ? 'r' : '-');
    }
    return layers;
}

std::string types_of(int64_t layers, int64_t period) {
    std::string list;
    for (int64_t i = 0; i < layers; ++i)
        list += fmt::format(R"({}"{}")", i > 0 ? ", " : "",
                            period > 0 && (i + 1) % period != 0 ? "sliding_attention" : "full_attention");
    return "[" + list + "]";
}

}  // namespace

TEST_CASE("families of other norms: parameters and active parameters of published flavours") {
    struct Counts {
        const char *family, *flavor;
        int64_t parameters, active;
    };
    // the counts of published weights, without the biases that balance experts
    for (const Counts& e : {Counts{"exaone4", "1.2B", 1279391488, 1279391488},
                            {"exaone4", "32B", 32003216384, 32003216384},
                            {"glm4", "32B-0414", 32566081536, 32566081536},
                            {"glm4", "9B-0414", 9400279040, 9400279040},
                            {"olmo2", "13B", 13716198400, 13716198400},
                            {"olmo2", "1B", 1484916736, 1484916736},
                            {"olmo2", "32B", 32234279936, 32234279936},
                            {"olmo2", "7B", 7298617344, 7298617344},
                            {"olmo3", "32B", 32233522176, 32233522176},
                            {"olmo3", "7B", 7298011136, 7298011136},
                            {"olmoe", "1B-7B", 6919161856, 1282017280}}) {
        CAPTURE(e.family, e.flavor);
        const DecoderConfig& m = find_flavor(find_family(e.family), e.flavor);
        m.validate();
        CHECK(m.parameters() == e.parameters);
        CHECK(m.active_parameters() == e.active);
    }
}

TEST_CASE("families of other norms: published config.json gives the flavours") {
    struct Published {
        const char *family, *flavor;
        std::string body;
    };
    const std::string usual =
        R"("attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02, "use_cache": true,
           "transformers_version": "4.57.0", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, )";
    const std::array table = {
        Published{"olmo2", "7B",
                  R"("architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "hidden_size": 4096,
            "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277,
            "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
            "vocab_size": 100352)"},
        Published{"olmo3", "7B",
                  R"("architectures": ["Olmo3ForCausalLM"], "attention_bias": false, "hidden_size": 4096,
            "intermediate_size": 11008, "max_position_embeddings": 65536, "model_type": "olmo3",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277,
            "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
            "original_max_position_embeddings": 8192, "rope_type": "yarn"}, "rope_theta": 500000,
            "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 100278, "layer_types": )" +
                      types_of(32, 4)},
        Published{"olmoe", "1B-7B",
                  R"("architectures": ["OlmoeForCausalLM"], "attention_bias": false, "clip_qkv": null,
            "hidden_size": 2048, "intermediate_size": 1024, "max_position_embeddings": 4096,
            "model_type": "olmoe", "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 64,
            "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
            "output_router_logits": false, "pad_token_id": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
            "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
            "vocab_size": 50304)"},
        Published{"exaone4", "1.2B",
                  R"("architectures": ["Exaone4ForCausalLM"], "head_dim": 64, "hidden_size": 2048,
            "intermediate_size": 4096, "max_position_embeddings": 65536, "model_type": "exaone4",
            "num_attention_heads": 32, "num_hidden_layers": 30, "num_key_value_heads": 8, "pad_token_id": 0,
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0,
            "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            "rope_theta": 1000000, "sliding_window": null, "sliding_window_pattern": null,
            "tie_word_embeddings": true, "vocab_size": 102400, "layer_types": )" +
                      types_of(30, 0)},
        Published{"exaone4", "32B",
                  R"("architectures": ["Exaone4ForCausalLM"], "head_dim": 128, "hidden_size": 5120,
            "intermediate_size": 27392, "max_position_embeddings": 131072, "model_type": "exaone4",
            "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8, "pad_token_id": 0,
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0,
            "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            "rope_theta": 1000000, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
            "tie_word_embeddings": false, "vocab_size": 102400, "layer_types": )" +
                      types_of(64, 4)}};
    for (const auto& [family, flavor, body] : table) {
        CAPTURE(family, flavor);
        const TemporaryFolder folder;
        const DecoderConfig read = read_twice(folder, usual + body);
        DecoderConfig expected = find_flavor(find_family(family), flavor);
        expected.flavor = "hf";
        // a flavour balances experts by biases
        if (!expected.moe.keeps_bias) expected.moe.balance_rate = read.moe.balance_rate;
        expected.moe.sequence_balance = read.moe.sequence_balance;
        CHECK(differences(read, expected).empty());
    }
}

TEST_CASE("config.json of OLMo 3 and EXAONE 4: layers with a window, and what RoPE they have") {
    const TemporaryFolder folder;
    const auto of = [&](const std::string& architecture, const std::string& keys) {
        return read_twice(folder, four_layers(architecture) + keys);
    };
    const std::string first =
        R"(, "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"])";
    const char *olmo3 = "Olmo3ForCausalLM", *exaone4 = "Exaone4ForCausalLM";
    CHECK(windows_and_ropes(of(olmo3, "")) == "bbbr");
    CHECK(windows_and_ropes(of(olmo3, first)) == "brrr");
    CHECK(windows_and_ropes(of(olmo3, R"(, "sliding_window": null, "layer_types": )" + types_of(4, 0))) ==
          "rrrr");
    const DecoderConfig yarn = of(
        olmo3,
        R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128})");
    CHECK(std::holds_alternative<YarnScaling>(yarn.rope.scaling));
    CHECK(std::holds_alternative<std::monostate>(yarn.window_rope.scaling));
    CHECK(yarn.window_rope.theta == 500000);

    CHECK(windows_and_ropes(of(exaone4, "")) == "bbb-");
    CHECK(windows_and_ropes(of(exaone4, first)) == "b---");
    CHECK(windows_and_ropes(of(exaone4, R"(, "sliding_window_pattern": 2)")) == "b-b-");
    CHECK(windows_and_ropes(of(exaone4, R"(, "sliding_window_pattern": 2)" + first)) == "b---");
    CHECK(windows_and_ropes(of(exaone4, R"(, "sliding_window": null, "layer_types": )" + types_of(4, 0))) ==
          "rrrr");
    const std::string in_none = R"(, "layer_types": )" + types_of(4, 0);
    CHECK(windows_and_ropes(of(exaone4, in_none)) == "----");
    CHECK(windows_and_ropes(of(exaone4, R"(, "sliding_window": 5)" + in_none)) == "----");
    CHECK(windows_and_ropes(of(exaone4, R"(, "sliding_window": 5, "sliding_window_pattern": 1)")) == "----");
    CHECK_THAT(
        message_of(config_folder(folder, four_layers(exaone4) + R"(, "sliding_window_pattern": "LLLG")")),
        Contains("sliding_window_pattern") && Contains("LLLG"));
}

TEST_CASE("config.json of OLMoE: clipped queries, keys and values are refused") {
    const TemporaryFolder folder;
    CHECK_THAT(message_of(config_folder(folder, four_layers("OlmoeForCausalLM") + R"(, "clip_qkv": 8.0)")),
               Contains("clip_qkv must be null (clipped queries, keys and values are not implemented yet)"));
}

TEST_CASE("config.json of any family: attention to later tokens is refused") {
    const TemporaryFolder folder;
    for (const std::string architecture : {"OlmoeForCausalLM", "Exaone4ForCausalLM"})
        CHECK_THAT(message_of(config_folder(folder, four_layers(architecture) + R"(, "is_causal": false)")),
                   Contains("is_causal must be true (attention to later tokens is not implemented yet)"));
}

TEST_CASE("families of other norms: names of norms in Hugging Face folders") {
    const auto place = [](const char* family, const std::string& norm) {
        const ModelFamily& f = find_family(family);
        return f.hub_places("layers.1." + norm + ".weight", {16}, f.flavors.front()).front().name;
    };
    CHECK(place("olmo2", "post_attention_norm") == "model.layers.1.post_attention_layernorm.weight");
    CHECK(place("olmo2", "post_ffn_norm") == "model.layers.1.post_feedforward_layernorm.weight");
    CHECK(place("olmoe", "attention_norm") == "model.layers.1.input_layernorm.weight");
    CHECK(place("olmoe", "ffn_norm") == "model.layers.1.post_attention_layernorm.weight");
    CHECK(place("glm4", "attention_norm") == "model.layers.1.input_layernorm.weight");
    CHECK(place("glm4", "post_attention_norm") == "model.layers.1.post_self_attn_layernorm.weight");
    CHECK(place("glm4", "ffn_norm") == "model.layers.1.post_attention_layernorm.weight");
    CHECK(place("glm4", "post_ffn_norm") == "model.layers.1.post_mlp_layernorm.weight");
}
