// SPDX-License-Identifier: Apache-2.0
// config.json of each family: published models, and what is special about a family.
#include "coeus/models/config_fields.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const char* const qwen_architectures[] = {"Qwen2ForCausalLM", "Qwen3ForCausalLM"};

}  // namespace

TEST_CASE("config.json of Qwen and Mistral: both forms give the same numbers") {
    const std::string rope_before = R"(, "rope_theta": 5e5, "rope_scaling": null)",
                      rope_now = R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5})",
                      qwen_before =
                          R"(, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1)",
                      types = R"(, "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                          "sliding_attention"])",
                      mistral = R"(, "sliding_window": 8)";
    struct Expected {
        const char *architecture, *family;
        std::string before, now;
        GroupedAttentionConfig attention;
        LayerChoice windowed;
    };
    const Expected table[] = {
        {"Qwen2ForCausalLM",
         "qwen2",
         qwen_before,
         qwen_before + types,
         {.heads = 4, .kv_heads = 2, .head_dim = 16, .bias = AttentionBias::qkv, .window = 8},
         {.first = 1}},
        {"Qwen3ForCausalLM",
         "qwen3",
         qwen_before,
         qwen_before + types,
         {.heads = 4, .kv_heads = 2, .head_dim = 128, .qk_norm = QkNorm::before_rope, .window = 8},
         {.first = 1}},
        {"MistralForCausalLM",
         "mistral",
         mistral,
         mistral,
         {.heads = 4, .kv_heads = 2, .head_dim = 16, .window = 8},
         {}},
    };
    for (const Expected& e : table)
        for (const bool is_now : {false, true}) {
            CAPTURE(e.family, is_now);
            const TemporaryFolder folder;
            config_folder(folder,
                          four_layers(e.architecture) + (is_now ? rope_now + e.now : rope_before + e.before));
            const DecoderConfig m = model_from_hub(folder.path());
            CHECK(m.family == e.family);
            CHECK(m.dim == 64);
            CHECK(m.layers == 4);
            CHECK(m.grouped() == e.attention);
            CHECK(m.windowed == e.windowed);
            CHECK(m.feed_forward.hidden == 96);
            CHECK(m.rope == RopeConfig{.theta = 5e5, .layout = RopeLayout::half_split});
            CHECK(m.norm_eps == 1e-5);
            CHECK(m.tied);
            CHECK(m.max_seq_len == 512);
            CHECK(read_hub_model(folder.path()).unknown_keys.empty());
        }
}

TEST_CASE("config.json of published models gives their flavours") {
    struct Published {
        const char *family, *flavor, *body;
    };
    const Published table[] = {
        {"qwen2", "7B",
         R"("architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
            "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
            "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
            "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
            "use_sliding_window": false, "vocab_size": 152064)"},
        {"qwen3", "8B",
         R"("architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
            "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
            "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
            "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
            "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
            "use_sliding_window": false, "vocab_size": 151936)"},
        {"mistral", "7B-v0.1",
         R"("architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
            "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
            "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
            "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000)"},
        {"gpt_oss", "20b",
         R"("architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
            "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
            "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
            "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
            "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
            "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false,
            "pad_token_id": 199999, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0,
            "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
            "truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
            "swiglu_limit": 7.0, "tie_word_embeddings": false, "transformers_version": "4.55.0.dev0",
            "use_cache": true, "vocab_size": 201088)"},
        {"deepseek_v3", "671B",
         R"("architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "aux_loss_alpha": 0.001, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1,
            "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02,
            "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
            "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
            "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
            "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
            "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
            "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
            "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
            "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280)"},
        {"deepseek_v3", "16B",
         R"("architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
            "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944,
            "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v2",
            "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64,
            "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts_per_tok": 6,
            "num_hidden_layers": 27, "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {
            "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
            "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true, "tie_word_embeddings": false,
            "topk_group": 1, "topk_method": "greedy", "torch_dtype": "bfloat16",
            "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400)"},
    };
    const TemporaryFolder folder;
    for (const Published& published : table) {
        CAPTURE(published.family);
        DecoderConfig expected = find_flavor(find_family(published.family), published.flavor);
        expected.flavor = "hf";
        if (!expected.moe.keeps_bias) expected.moe.balance_rate = 0;
        if (expected.family == "gpt_oss") set_router_aux_loss_coef(expected, 0.001);
        if (std::string(published.flavor) == "16B") expected.moe.sequence_balance = 0.001;
        const DecoderConfig read = model_from_hub(config_folder(folder, published.body));
        if (expected.is_latent()) {  // torchtitan has another length, epsilon and digits of mscale
            auto& yarn = std::get<YarnScaling>(expected.rope.scaling);
            CHECK(std::get<YarnScaling>(read.rope.scaling).mscale == Approx(yarn.mscale).margin(0.01));
            yarn.mscale = yarn.mscale_all_dim = std::get<YarnScaling>(read.rope.scaling).mscale;
            expected.norm_eps = expected.latent().latent_norm_eps = 1e-6;
            expected.max_seq_len = 163840;
            expected.mtp.layers = expected.layers == 61 ? 1 : 0;  // a flavour has none unless a deck asks
        }
        CHECK(read == expected);
        CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    }
}

TEST_CASE(
    "config.json of DeepSeek: a router that its architecture does not have is refused by key and value") {
    const TemporaryFolder folder;
    const auto refusal = [&](const std::string& version, const std::string& keys) {
        return message_of(config_folder(
            folder, fmt::format(R"("architectures": ["DeepseekV{}ForCausalLM"], "hidden_size": 64,
                "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 4, "num_experts_per_tok": 2, "vocab_size": 256,
                {})",
                                version, keys)));
    };
    CHECK(refusal("3", R"("q_lora_rank": 24)") == "read without complaint");
    CHECK(refusal("2", R"("q_lora_rank": null)") == "read without complaint");
    CHECK_THAT(
        refusal("3", R"("scoring_func": "tanh")"),
        Contains(R"(scoring_func must be "sigmoid" or "softmax" (others are not implemented yet), is )"));
    CHECK_THAT(refusal("3", R"("topk_method": "greedy")"), Contains("topk_method must be \"noaux_tc\""));
    CHECK_THAT(refusal("2", R"("topk_method": "group_limited_greedy")"),
               Contains("topk_method must be \"greedy\"") && Contains("\"group_limited_greedy\""));
    CHECK_THAT(refusal("2", R"("norm_topk_prob": true)"), Contains("norm_topk_prob must be false"));
    CHECK_THAT(refusal("3", R"("attention_bias": true)"), Contains("attention_bias must be false"));
    CHECK_THAT(refusal("3", R"("moe_layer_freq": 2)"), Contains("moe_layer_freq must be 1"));
    CHECK_THAT(refusal("3", R"("kv_lora_rank": 0)"), Contains("kv_lora_rank must be at least 1, is 0"));
    CHECK_THAT(refusal("3", R"("n_routed_experts": 250)"), Contains("250"));
    CHECK(refusal("3", R"("qk_head_dim": 192)") == "read without complaint");
    CHECK_THAT(refusal("3", R"("qk_head_dim": 128)"),
               Contains("qk_head_dim must be 192 (qk_nope_head_dim + qk_rope_head_dim), is 128"));
}

TEST_CASE("config.json: two keys for one number of experts must agree") {
    const TemporaryFolder folder;
    struct Pair {
        const char *architecture, *now, *before;
        int64_t (*read)(const DecoderConfig&);
    };
    const Pair pairs[] = {
        {"Qwen3MoeForCausalLM", "num_experts", "num_local_experts",
         [](const DecoderConfig& config) { return config.moe.experts; }},
        {"GptOssForCausalLM", "num_experts_per_tok", "experts_per_token",
         [](const DecoderConfig& config) { return config.moe.top_k; }},
    };
    for (const auto& [architecture, now, before, read] : pairs) {
        CAPTURE(architecture);
        const auto file = [&, architecture = architecture](const std::string& keys) {
            return config_folder(folder, four_layers(architecture) + keys);
        };
        const std::string one = fmt::format(R"(, "{}": 8)", now), other = fmt::format(R"(, "{}": 8)", before);
        for (const std::string& keys : {one, other, one + other})
            CHECK(read(model_from_hub(file(keys))) == 8);
        const std::string text = message_of(file(one + fmt::format(R"(, "{}": 4)", before)));
        CHECK_THAT(text, Contains(fmt::format("{} is 8", now)) && Contains(fmt::format("{} is 4", before)) &&
                             Contains("they must agree; correct or remove one of the two"));
    }
}

TEST_CASE("config.json of Llama 4: layers without RoPE, chunks, temperature and layers with experts") {
    const TemporaryFolder folder;
    const auto file = [&](const std::string& keys) {
        return config_folder(
            folder, R"("architectures": ["Llama4ForCausalLM"], "hidden_size": 64, "intermediate_size": 24,
                "intermediate_size_mlp": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
                "num_hidden_layers": 8, "vocab_size": 256, "num_local_experts": 4)" +
                        keys);
    };
    const auto model = [&](const std::string& keys) { return model_from_hub(file(keys)); };
    const DecoderConfig usual = model("");
    CHECK(usual.without_rope == LayerChoice{4, 3});
    CHECK(usual.grouped().chunk == 8192);
    CHECK(usual.grouped().temperature == Temperature{.scale = 0.1, .floor = 8192});
    CHECK(usual.grouped().qk_norm == QkNorm::after_rope);
    CHECK(usual.moe_layers == LayerChoice{});
    CHECK(usual.feed_forward.hidden == 0);
    CHECK((usual.moe.hidden == 24 && usual.moe.shared_hidden == 24 && usual.moe.gate.scales_input));
    CHECK(usual.layer(3).grouped().qk_norm == QkNorm::none);
    CHECK(usual.layer(3).grouped().temperature);
    CHECK_FALSE(usual.layer(2).grouped().temperature);
    CHECK(model(R"(, "attention_chunk_size": null)").grouped().chunk == 0);
    CHECK(model(R"(, "attn_temperature_tuning": false, "use_qk_norm": false)").grouped() ==
          GroupedAttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 16, .chunk = 8192});
    CHECK(model(R"(, "no_rope_layers": [1, 1, 1, 1, 1, 1, 1, 1])").without_rope == LayerChoice{.period = 0});
    CHECK(model(R"(, "no_rope_layers": [0, 1, 1, 0, 1, 1, 0, 1])").without_rope == LayerChoice{3, 0});
    CHECK(model(R"(, "no_rope_layers": [0, 0, 1, 0, 1, 1, 0, 1])").without_rope ==
          LayerChoice{.word = "11010010"});
    CHECK(model(R"(, "moe_layers": [0, 1, 2, 4, 5, 6])").moe_layers == LayerChoice{.word = "1110"});
    CHECK(model(R"(, "interleave_moe_layer_step": 2)").moe_layers == LayerChoice{2, 1});
    CHECK(model(R"(, "interleave_moe_layer_step": 2)").feed_forward.hidden == 96);
    CHECK(model(R"(, "moe_layers": [2, 5])").moe_layers == LayerChoice{3, 2});
    CHECK(model(R"(, "moe_layers": [])").moe.experts == 0);
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    const auto refusal = [&](const std::string& keys) { return message_of(file(keys)); };
    CHECK_THAT(refusal(R"(, "no_rope_layers": [0, 1])"),
               Contains("no_rope_layers must have one entry for each of 8 layers"));
    CHECK_THAT(refusal(R"(, "no_rope_layers": [0, 1, 1, 2, 1, 1, 0, 1])"), Contains("must be 0 or 1, is 2"));
    CHECK_THAT(refusal(R"(, "moe_layers": [1, 8])"), Contains("must be the number of a layer, is 8"));
    CHECK_THAT(
        refusal(R"(, "layer_types": ["chunked_attention", "full_attention", "chunked_attention",
                        "full_attention", "chunked_attention", "chunked_attention", "chunked_attention",
                        "full_attention"])"),
        Contains("must be \"chunked_attention\" (others are not implemented yet), because the layer has "
                 "RoPE"));
    CHECK_THAT(refusal(R"(, "floor_scale": 0)"), Contains("floor_scale must be greater than 0, is 0"));
    CHECK_THAT(refusal(R"(, "attention_chunk_size": 0)"),
               Contains("attention_chunk_size must be at least 1"));
    CHECK_THAT(refusal(R"(, "attention_bias": true)"), Contains("attention_bias must be false"));
}

TEST_CASE("config.json of gpt-oss: which layers have a window") {
    const TemporaryFolder folder;
    const auto model = [&](const std::string& keys) {
        return model_from_hub(config_folder(folder, four_layers("GptOssForCausalLM") + keys));
    };
    const std::string full =
        R"(, "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"])";
    CHECK(model("").head_sizes().window == 128);
    CHECK(model("").windowed == LayerChoice{.period = 2});
    CHECK(model(R"(, "sliding_window": 16)").head_sizes().window == 16);
    for (const std::string& none : {full, R"(, "sliding_window": null)" + full}) {
        const DecoderConfig m = model(none);
        CHECK(m.head_sizes().window == 0);
        write_json(hub_config_of(m), folder / "config.json");
        CHECK(model_from_hub(folder.path()).layer(0) == m.layer(0));
    }
}

TEST_CASE("config.json of Qwen 3 with experts: a window is in all layers, and heads are hidden/heads wide") {
    const TemporaryFolder folder;
    const DecoderConfig m = model_from_hub(config_folder(
        folder, four_layers("Qwen3MoeForCausalLM") +
                    R"(, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 3)"));
    CHECK(m.head_sizes().head_dim == 16);
    for (int64_t i = 0; i < 4; ++i) CHECK(m.layer(i).head_sizes().window == 8);
    CHECK(model_from_hub(config_folder(folder, four_layers("Qwen3MoeForCausalLM"))).head_sizes().window == 0);
}

TEST_CASE("config.json of DeepSeek V3: the biases of the router are there without balancing, too") {
    const TemporaryFolder folder;
    DecoderConfig m =
        model_from_hub(config_folder(folder, R"("architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64,
            "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 4, "vocab_size": 272)"));
    const auto has_bias = [&] {
        const Decoder decoder(m, {}, 1);
        return std::ranges::any_of(decoder.parameters().storages(), &Storage::is_exact);
    };
    CHECK(m.moe.keeps_bias);
    m.moe.balance_rate = 0;
    CHECK(has_bias());
    m.moe.keeps_bias = false;
    CHECK_FALSE(has_bias());
}

TEST_CASE("config.json without a place for balancing biases: a loss balances the experts") {
    const TemporaryFolder folder;
    struct Architecture {
        const char *name, *keys;
    };
    for (const auto& [name, keys] :
         {Architecture{"Qwen3MoeForCausalLM", R"(, "num_experts_per_tok": 2)"},
          Architecture{"GptOssForCausalLM", R"(, "num_experts_per_tok": 2, "num_local_experts": 8)"},
          Architecture{"Llama4ForCausalLM",
                       R"(, "num_experts_per_tok": 2, "head_dim": 16, "no_rope_layer_interval": 2)"}}) {
        CAPTURE(name);
        const auto file = [&, name = name, keys = keys](const std::string& more) {
            return config_folder(folder, four_layers(name) + keys + more);
        };
        const auto alpha = [&](const std::string& more) {
            const DecoderConfig m = model_from_hub(file(more));
            CHECK(m.moe.balance_rate == 0);
            CHECK(read_hub_model(folder.path()).unknown_keys.empty());
            return m.moe.sequence_balance;
        };
        // times top_k, divided by the number of layers with experts
        CHECK(close(alpha(""), 0.001 * 2 / 4, 1e-15));
        CHECK(close(alpha(R"(, "router_aux_loss_coef": 0.02)"), 0.02 * 2 / 4, 1e-15));
        CHECK(alpha(R"(, "router_aux_loss_coef": 0)") == 0);
        // gpt-oss's folders have 0.9, but do not ask for the loss
        const std::string large = R"(, "router_aux_loss_coef": 0.9, "output_router_logits": )";
        CHECK(close(alpha(large + "false"), 0.001 * 2 / 4, 1e-15));
        CHECK(close(alpha(large + "true"), 0.9 * 2 / 4, 1e-15));
        CHECK_THAT(message_of(file(R"(, "router_aux_loss_coef": -0.1)")),
                   Contains("router_aux_loss_coef must be at least 0, is -0.1"));
        // what is written has the coefficient, unless biases alone balanced the experts
        const auto written = [](const DecoderConfig& m) {
            const Json json = hub_config_of(m);
            const Json* value = json.find("router_aux_loss_coef");
            return value ? value->text() : "none";
        };
        DecoderConfig m = model_from_hub(file(R"(, "router_aux_loss_coef": 0.03)"));
        CHECK(written(m) == "0.03");
        m.moe.top_k = 1;
        CHECK(written(m) == "0.06");
        m.moe.sequence_balance = 0;
        CHECK(written(m) == "0.0");
        m.moe.balance_rate = 1e-3;
        CHECK(written(m) == "none");
    }
    const DecoderConfig sparse =
        model_from_hub(config_folder(folder, four_layers("Qwen3MoeForCausalLM") +
                                                 R"(, "decoder_sparse_step": 2, "num_experts_per_tok": 3)"));
    CHECK(close(sparse.moe.sequence_balance, 0.001 * 3 / 2, 1e-15));
}

TEST_CASE("config.json of DeepSeek V2: the coefficient of the loss that balances sequences") {
    const TemporaryFolder folder;
    const auto file = [&](const std::string& more) {
        return config_folder(folder, R"("architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 64,
            "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 4, "vocab_size": 272,
            "num_experts_per_tok": 2, "q_lora_rank": null)" +
                                         more);
    };
    const DecoderConfig usual = model_from_hub(file(""));
    CHECK((usual.moe.balance_rate == 0 && usual.moe.sequence_balance == 0.001));
    const DecoderConfig given = model_from_hub(file(R"(, "aux_loss_alpha": 0.003)"));
    CHECK(given.moe.sequence_balance == 0.003);
    write_json(hub_config_of(given), folder / "config.json");
    CHECK(model_from_hub(folder.path()) == given);
    CHECK_THAT(message_of(file(R"(, "aux_loss_alpha": -1)")),
               Contains("aux_loss_alpha must be at least 0, is -1"));
}

TEST_CASE("config.json of SmolLM is that of a Llama") {
    const TemporaryFolder folder;
    config_folder(folder,
                  R"("architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu",
        "hidden_size": 576, "intermediate_size": 1536, "max_position_embeddings": 2048, "model_type": "llama",
        "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "rms_norm_eps": 1e-05,
        "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": true, "vocab_size": 49152)");
    const DecoderConfig m = model_from_hub(folder.path());
    CHECK(m.grouped() == GroupedAttentionConfig{.heads = 9, .kv_heads = 3, .head_dim = 64});
    CHECK(m.parameters() == 134515008);
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
}

TEST_CASE("config.json of Llama and Qwen 3: attention_bias gives all four projections a bias") {
    for (const std::string architecture : {"LlamaForCausalLM", "Qwen3ForCausalLM"})
        for (const bool has : {false, true}) {
            CAPTURE(architecture, has);
            const TemporaryFolder folder;
            const DecoderConfig m = model_from_hub(config_folder(
                folder, four_layers(architecture) + fmt::format(R"(, "attention_bias": {})", has)));
            CHECK(m.grouped().bias == (has ? AttentionBias::all : AttentionBias::none));
            write_json(hub_config_of(m), folder / "config.json");
            CHECK(model_from_hub(folder.path()) == m);
        }
}

TEST_CASE("config.json of Qwen: which layers have a window") {
    const std::string window = R"(, "use_sliding_window": true, "sliding_window": 8)";
    const auto types = [](std::string letters) {
        std::string text = R"(, "layer_types": [)";
        for (const char letter : letters)
            text += fmt::format("{}\"{}_attention\"", text.ends_with('[') ? "" : ", ",
                                letter == 's' ? "sliding" : "full");
        return text + "]";
    };
    struct Expected {
        std::string keys, layers;  // s: has a window
    };
    const Expected table[] = {
        {"", "ffff"},
        {R"(, "sliding_window": 8)", "ffff"},
        {R"(, "sliding_window": 8, "max_window_layers": 0)", "ffff"},
        {R"(, "use_sliding_window": false, "sliding_window": 8, "max_window_layers": 0)", "ffff"},
        {R"(, "use_sliding_window": true, "sliding_window": null, "max_window_layers": 0)", "ffff"},
        {window, "ffff"},  // max_window_layers is 28
        {window + R"(, "max_window_layers": 0)", "ssss"},
        {window + R"(, "max_window_layers": 2)", "ffss"},
        {window + R"(, "max_window_layers": 3)", "fffs"},
        {window + R"(, "max_window_layers": 4)", "ffff"},
        {window + R"(, "max_window_layers": 2)" + types("sfsf"), "sfsf"},
        {window + types("fsfs"), "fsfs"},
        {window + types("sffs"), "sffs"},
        {window + types("sfff"), "sfff"},
        {window + types("fsff"), "fsff"},
        {window + types("fffs"), "fffs"},
        {window + types("ssfs"), "ssfs"},
        {window + types("sfss"), "sfss"},
        {window + types("ssss"), "ssss"},
        {window + types("ffff"), "ffff"},
        {types("ffff"), "ffff"},
    };
    for (const char* architecture : qwen_architectures)
        for (const Expected& e : table) {
            CAPTURE(architecture, e.keys);
            const TemporaryFolder folder;
            config_folder(folder, four_layers(architecture) + e.keys);
            const DecoderConfig m = model_from_hub(folder.path());
            std::string layers;
            for (int64_t i = 0; i < m.layers; ++i) {
                const int64_t of_layer = m.layer(i).head_sizes().window;
                CHECK((of_layer == 0 || of_layer == 8));
                layers += of_layer ? 's' : 'f';
            }
            CHECK(layers == e.layers);
            CHECK(read_hub_model(folder.path()).unknown_keys.empty());
            // and back
            write_json(hub_config_of(m), folder / "config.json");
            CHECK(model_from_hub(folder.path()) == m);
        }
}

TEST_CASE("config.json of Qwen: windows that are wrong or not implemented are reported in words") {
    const TemporaryFolder folder;
    const std::string window = R"(, "use_sliding_window": true, "sliding_window": 8)";
    const auto types = [](const std::string& list) { return R"(, "layer_types": [)" + list + "]"; };
    for (const char* architecture : qwen_architectures) {
        const auto message = [&](const std::string& keys) {
            return message_of(config_folder(folder, four_layers(architecture) + keys));
        };
        const std::string full = R"("full_attention")", sliding = R"("sliding_attention")";
        for (const std::string& list : {fmt::format("{0}, {0}, {0}", sliding),
                                        fmt::format("{0}, {0}, {0}, {0}, {0}", full), std::string()})
            CHECK_THAT(message(window + types(list)),
                       Contains("layer_types must have one type for each of 4 layers"));
        CHECK_THAT(message(window + types(fmt::format(R"({0}, "chunked_attention", {0}, {0})", full))),
                   Contains(R"(layer_types[1] must be "sliding_attention" or "full_attention" )"
                            R"((others are not implemented yet), is "chunked_attention")"));
        for (const char* without : {"", R"(, "sliding_window": null, "use_sliding_window": true)",
                                    R"(, "sliding_window": 8, "use_sliding_window": false)"})
            CHECK_THAT(message(without + types(fmt::format("{0}, {1}, {0}, {1}", sliding, full))),
                       Contains(R"(layer_types must not have "sliding_attention" without sliding_window)"));
        CHECK_THAT(message(R"(, "use_sliding_window": true, "max_window_layers": 0, "sliding_window": 0)"),
                   Contains("sliding_window must be at least 1, is 0"));
        CHECK_THAT(message(R"(, "use_sliding_window": "yes")"), Contains("use_sliding_window"));
        CHECK_THAT(message(R"(, "hidden_act": "gelu")"), Contains("hidden_act must be \"silu\""));
        CHECK_THAT(message(R"(, "rope_scaling": {"rope_type": "ntk", "factor": 4.0})"),
                   Contains("rope_scaling of type \"ntk\" is unknown to this version"));
    }
}

TEST_CASE("config.json of Qwen 3 with experts: any layers may be dense, and are written") {
    struct Expected {
        const char *keys, *experts;  // of four layers
    };
    const Expected table[] = {{"", "1111"},
                              {R"(, "mlp_only_layers": [0])", "0111"},
                              {R"(, "mlp_only_layers": [2])", "1101"},
                              {R"(, "mlp_only_layers": [1, 2, 7])", "1001"},
                              {R"(, "decoder_sparse_step": 2)", "0101"},
                              {R"(, "decoder_sparse_step": 2, "mlp_only_layers": [1])", "0001"},
                              {R"(, "decoder_sparse_step": 2, "mlp_only_layers": [0])", "0101"}};
    for (const Expected& e : table) {
        CAPTURE(e.keys);
        const TemporaryFolder folder;
        config_folder(folder, four_layers("Qwen3MoeForCausalLM") + e.keys);
        const DecoderConfig m = model_from_hub(folder.path());
        std::string experts;
        for (int64_t i = 0; i < m.layers; ++i) experts += m.layer(i).is_dense() ? '0' : '1';
        CHECK(experts == e.experts);
        CHECK((m.feed_forward.hidden == 0) == (experts == "1111"));
        CHECK(read_hub_model(folder.path()).unknown_keys.empty());
        write_json(hub_config_of(m), folder / "config.json");
        CHECK(model_from_hub(folder.path()) == m);
    }
    const TemporaryFolder folder;
    CHECK_THAT(message_of(config_folder(
                   folder, four_layers("Qwen3MoeForCausalLM") + R"(, "mlp_only_layers": [0, 1, 2, 3])")),
               Contains("mlp_only_layers must leave a layer with experts"));
    DecoderConfig one = model_from_hub(
        config_folder(folder, four_layers("Qwen3MoeForCausalLM") + R"(, "mlp_only_layers": [1, 2, 3])"));
    CHECK_THROWS_WITH(
        override_fields(one,
                        [](const std::string& name) {
                            return name == "n_layers" ? std::optional<FieldValue>(int64_t(8)) : std::nullopt;
                        }),
        Contains("model.n_layers = 8: qwen3 hf has a list of 4 layers (moe.layers = \"1000\")"));
}

TEST_CASE("config.json of Mistral: a window in all layers, or none") {
    const TemporaryFolder folder;
    const std::string sizes = four_layers("MistralForCausalLM");
    for (const auto& [key, window] : {std::pair<std::string, int64_t>{"8", 8}, {"null", 0}}) {
        CAPTURE(key);
        const DecoderConfig m =
            model_from_hub(config_folder(folder, sizes + R"(, "sliding_window": )" + key));
        for (int64_t i = 0; i < m.layers; ++i) CHECK(m.layer(i).head_sizes().window == window);
        const Json written = hub_config_of(m);
        REQUIRE(written.find("sliding_window"));
        CHECK(written.find("sliding_window")->text() == key);
        write_json(written, folder / "config.json");
        CHECK(model_from_hub(folder.path()) == m);
    }
    // transformers' default
    CHECK(model_from_hub(config_folder(folder, sizes)).head_sizes().window == 4096);
    CHECK_THAT(message_of(config_folder(folder, sizes + R"(, "sliding_window": 0)")),
               Contains("sliding_window must be at least 1, is 0"));
    CHECK_THAT(message_of(config_folder(folder, sizes + R"(, "sliding_window": "long")")),
               Contains("sliding_window must be an integer"));
}
