// SPDX-License-Identifier: Apache-2.0
// Families of open models that are made of known parts: the counts of published flavours, published
// config.json, and what is special about each.
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <array>
#include <tuple>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

std::string layers_of(const DecoderConfig& m, bool (*has)(const LayerConfig&)) {
    std::string layers;
    for (int64_t i = 0; i < m.layers; ++i) layers += has(m.layer(i)) ? '1' : '0';
    return layers;
}
bool has_window(const LayerConfig& layer) {
    return layer.head_sizes().window > 0;
}
bool has_experts(const LayerConfig& layer) {
    return !layer.is_dense();
}
bool has_rope(const LayerConfig& layer) {
    return layer.grouped().rope;
}

// Reads, and reads again what is written of it.
DecoderConfig read_and_written(const TemporaryFolder& folder, const std::string& body) {
    const DecoderConfig m = model_from_hub(config_folder(folder, body));
    CHECK(read_hub_model(folder.path()).unknown_keys == std::vector<std::string>());
    write_json(hub_config_of(m), folder / "config.json");
    CHECK(model_from_hub(folder.path()) == m);
    CHECK(read_hub_model(folder.path()).unknown_keys == std::vector<std::string>());
    return m;
}

}  // namespace

TEST_CASE("open families: parameters, active parameters and FLOPs per token of published flavours") {
    struct Counts {
        const char *family, *flavor;
        int64_t parameters, active;
        double flops;  // at 2048 tokens
    };
    // the counts of published weights, without the biases that balance experts
    for (const Counts& e : {Counts{"cwm", "32B", 32581097472, 32581097472, 200422232064},
                            Counts{"deepseek_v3", "Moonlight-16B-A3B", 15960108544, 2914774528, 17174074368},
                            Counts{"deepseek_v3", "Kimi-K2", 1026408209408, 32861477888, 205473589248},
                            Counts{"dots1", "142B-A14B", 142774373888, 14016581120, 86603486208},
                            Counts{"ernie4_5", "0.3B", 360748032, 360748032, 3070457856},
                            Counts{"ernie4_5", "21B-A3B", 21825436160, 3352148480, 21874498560},
                            Counts{"ernie4_5", "300B-A47B", 298636910592, 47079333888, 293347639296},
                            Counts{"glm4_moe", "4.5-Air", 106852245504, 13424123904, 90711736320},
                            Counts{"glm4_moe", "4.5", 352797814784, 33632251904, 224920903680},
                            Counts{"glm4_moe", "4.6", 352797814784, 33632251904, 224920903680},
                            Counts{"glm4_moe", "4.7", 352797814784, 33632251904, 224920903680},
                            Counts{"glm4_moe_lite", "4.7-Flash", 29943390976, 3896763136, 27391382016},
                            Counts{"mixtral", "8x7B", 46702792704, 12879925248, 79714344960},
                            Counts{"mixtral", "8x22B", 140620634112, 39152031744, 242188259328},
                            Counts{"seed_oss", "36B", 36151104512, 36151104512, 228246976512},
                            Counts{"smollm3", "3B", 3075098624, 3075098624, 20262531072}}) {
        CAPTURE(e.family, e.flavor);
        const DecoderConfig& m = find_flavor(find_family(e.family), e.flavor);
        m.validate();
        CHECK(m.parameters() == e.parameters);
        CHECK(m.active_parameters() == e.active);
        CHECK(m.flops_per_token(2048) == e.flops);
    }
}

TEST_CASE("open families: published config.json gives the flavours") {
    struct Published {
        const char *family, *flavor, *body;
    };
    const std::array table = {
        Published{"mixtral", "8x7B",
                  R"("architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
            "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
            "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
            "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
            "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
            "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache": true,
            "vocab_size": 32000)"},
        Published{
            "glm4_moe", "4.5-Air",
            R"("architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
            "pad_token_id": 151329, "eos_token_id": [151329, 151336, 151338], "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 4096, "partial_rotary_factor": 0.5, "initializer_range": 0.02,
            "intermediate_size": 10944, "max_position_embeddings": 131072, "model_type": "glm4_moe",
            "moe_intermediate_size": 1408, "norm_topk_prob": true, "num_attention_heads": 96, "n_group": 1,
            "topk_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "routed_scaling_factor": 1.0,
            "num_experts_per_tok": 8, "first_k_dense_replace": 1, "num_hidden_layers": 46,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
            "num_nextn_predict_layers": 1, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "transformers_version": "4.54.0", "use_cache": true, "use_qk_norm": false, "vocab_size": 151552)"},
        Published{
            "seed_oss", "36B",
            R"("architectures": ["SeedOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.1,
            "attention_out_bias": false, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 27648,
            "max_position_embeddings": 524288, "mlp_bias": false, "model_type": "seed_oss",
            "num_attention_heads": 80, "num_hidden_layers": 64, "num_key_value_heads": 8, "residual_dropout": 0.1,
            "rms_norm_eps": 1e-06, "rope_scaling": {"rope_type": "default"}, "rope_theta": 10000000.0,
            "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.55.0",
            "use_cache": true, "vocab_size": 155136)"},
        Published{
            "deepseek_v3", "Moonlight-16B-A3B",
            R"("architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001,
            "bos_token_id": 163584, "eos_token_id": 163585, "first_k_dense_replace": 1, "hidden_act": "silu",
            "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 11264, "kv_lora_rank": 512,
            "max_position_embeddings": 8192, "model_type": "deepseek_v3", "moe_intermediate_size": 1408,
            "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2,
            "norm_topk_prob": true, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
            "num_key_value_heads": 16, "num_nextn_predict_layers": 0, "q_lora_rank": null,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_theta": 50000.0,
            "routed_scaling_factor": 2.446, "scoring_func": "sigmoid", "seq_aux": true,
            "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
            "use_cache": true, "v_head_dim": 128, "vocab_size": 163840)"},
        Published{
            "deepseek_v3", "Kimi-K2",
            R"("architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001,
            "bos_token_id": 163584, "eos_token_id": 163585, "first_k_dense_replace": 1, "hidden_act": "silu",
            "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
            "max_position_embeddings": 131072, "model_type": "kimi_k2", "moe_intermediate_size": 2048,
            "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384, "n_shared_experts": 1,
            "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 61,
            "num_key_value_heads": 64, "num_nextn_predict_layers": 0, "q_lora_rank": 1536,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {
            "beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 50000.0,
            "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "seq_aux": true,
            "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
            "use_cache": true, "v_head_dim": 128, "vocab_size": 163840)"}};
    for (const auto& [family, flavor, body] : table) {
        CAPTURE(family, flavor);
        const TemporaryFolder folder;
        DecoderConfig read = read_and_written(folder, body);
        DecoderConfig expected = find_flavor(find_family(family), flavor);
        expected.flavor = "hf";
        // a flavour has no layers of multi-token prediction, and balances experts by biases
        read.mtp.layers = 0;
        if (!expected.moe.keeps_bias) expected.moe.balance_rate = read.moe.balance_rate;
        expected.moe.sequence_balance = read.moe.sequence_balance;
        CHECK(differences(read, expected).empty());
        CHECK(read == expected);
    }
}

TEST_CASE(
    "config.json: a width of heads of null is hidden_size / num_attention_heads, whatever the default is") {
    const TemporaryFolder folder;
    for (const char* architecture : {"Qwen3ForCausalLM", "SeedOssForCausalLM", "MixtralForCausalLM"}) {
        CAPTURE(architecture);
        const auto width = [&](const std::string& keys) {
            return read_and_written(folder, four_layers(architecture) + keys).head_sizes().head_dim;
        };
        CHECK(width(R"(, "head_dim": null)") == 16);
        CHECK(width(R"(, "head_dim": 24)") == 24);
        CHECK(width("") == (std::string(architecture) == "MixtralForCausalLM" ? 16 : 128));
    }
    const std::string qwen = four_layers("Qwen3ForCausalLM");
    const std::string two = R"("num_key_value_heads": 2)", null = R"("num_key_value_heads": null)";
    CHECK(read_and_written(folder, std::string(qwen).replace(qwen.find(two), two.size(), null))
              .head_sizes()
              .kv_heads == 4);
}

TEST_CASE("config.json of Seed-OSS: biases of the inputs and of the output of attention, apart") {
    const TemporaryFolder folder;
    for (const auto& [in, out, bias] : {std::tuple(false, false, AttentionBias::none),
                                        {true, false, AttentionBias::qkv},
                                        {true, true, AttentionBias::all},
                                        {false, true, AttentionBias::out}}) {
        CAPTURE(in, out);
        const DecoderConfig m = read_and_written(
            folder, four_layers("SeedOssForCausalLM") +
                        fmt::format(R"(, "attention_bias": {}, "attention_out_bias": {})", in, out));
        CHECK(m.grouped().bias == bias);
        CHECK(m.parameters() - [&] {
            DecoderConfig none = m;
            none.grouped().bias = AttentionBias::none;
            return none.parameters();
        }() == m.layers * ((in ? (4 + 2 + 2) * 128 : 0) + (out ? 64 : 0)));
    }
}

TEST_CASE("config.json of ERNIE 4.5: layers with experts, from a first to a last one") {
    const TemporaryFolder folder;
    const auto experts = [&](const std::string& keys) {
        return layers_of(read_and_written(folder, four_layers("Ernie4_5_MoeForCausalLM") +
                                                      R"(, "moe_num_experts": 8, "moe_k": 2)" + keys),
                         has_experts);
    };
    CHECK(experts("") == "0111");
    CHECK(experts(R"(, "moe_layer_start_index": 0, "moe_layer_end_index": -1)") == "1111");
    CHECK(experts(R"(, "moe_layer_start_index": 2, "moe_layer_end_index": 3)") == "0011");
    CHECK(experts(R"(, "moe_layer_end_index": 2)") == "0110");
    CHECK(experts(R"(, "moe_layer_interval": 2)") == "0101");
    CHECK(experts(R"(, "moe_layer_interval": 2, "moe_layer_end_index": 2)") == "0100");
    CHECK(experts(R"(, "moe_layer_start_index": 4)") == "0000");
    CHECK_THAT(message_of(config_folder(
                   folder, four_layers("Ernie4_5_MoeForCausalLM") + R"(, "moe_norm_min": 1e-3)")),
               Contains("moe_norm_min must be 1e-12"));
    CHECK_THAT(
        message_of(config_folder(folder, four_layers("Ernie4_5ForCausalLM") + R"(, "use_bias": true)")),
        Contains("use_bias must be false"));
}

TEST_CASE("config.json of GLM: the rotated part of a head in each of its places, and dense layers") {
    const TemporaryFolder folder;
    const std::string glm =
        four_layers("Glm4MoeForCausalLM") + R"(, "n_routed_experts": 8, "num_experts_per_tok": 2)";
    CHECK(read_and_written(folder, glm).grouped().rope_fraction == 0.5);
    for (const char* keys :
         {R"(, "partial_rotary_factor": 0.25)", R"(, "rope_parameters": {"partial_rotary_factor": 0.25})",
          R"(, "rope_scaling": {"type": "default", "partial_rotary_factor": 0.25})"})
        CHECK(read_and_written(folder, glm + keys).grouped().rope_fraction == 0.25);
    CHECK_THAT(
        message_of(config_folder(
            folder,
            glm + R"(, "partial_rotary_factor": 0.25, "rope_parameters": {"partial_rotary_factor": 1})")),
        Contains("partial_rotary_factor must be"));
    CHECK(layers_of(read_and_written(folder, glm + R"(, "first_k_dense_replace": 3)"), has_experts) ==
          "0001");
    const std::string lite = R"("architectures": ["Glm4MoeLiteForCausalLM"], "hidden_size": 64,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96,
        "vocab_size": 272, "n_routed_experts": 8)";
    CHECK(layers_of(read_and_written(folder, lite), has_experts) == "0111");
    CHECK(layers_of(read_and_written(folder,
                                     lite + R"(, "mlp_layer_types": ["sparse", "dense", "dense", "sparse"])"),
                    has_experts) == "1001");
    CHECK_THAT(message_of(config_folder(folder, lite + R"(, "mlp_layer_types": ["sparse"])")),
               Contains("mlp_layer_types must have one type for each of 4 layers"));
}

TEST_CASE("config.json of SmolLM3 and CWM: layers without RoPE, and layers with a window") {
    const TemporaryFolder folder;
    const std::string smol = four_layers("SmolLM3ForCausalLM");
    CHECK(layers_of(read_and_written(folder, smol), has_rope) == "1110");
    CHECK(layers_of(read_and_written(folder, smol + R"(, "no_rope_layers": [0, 1, 0, 1])"), has_rope) ==
          "0101");
    CHECK(layers_of(read_and_written(folder, smol + R"(, "no_rope_layer_interval": 2)"), has_rope) == "1010");
    const std::string window = R"(, "use_sliding_window": true, "sliding_window": 8)";
    CHECK(layers_of(read_and_written(folder, smol), has_window) == "0000");
    // transformers gives the window to the layers without RoPE, unless a list says otherwise
    CHECK(layers_of(read_and_written(folder, smol + window), has_window) == "0001");
    const std::string first =
        R"(, "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"])";
    CHECK(layers_of(read_and_written(folder, smol + window + first), has_window) == "1000");
    const std::string cwm = four_layers("CwmForCausalLM");
    const DecoderConfig usual = read_and_written(folder, cwm);
    CHECK(layers_of(usual, has_window) == "0111");
    CHECK(usual.head_sizes().window == 8192);
    CHECK(std::get<Llama3Scaling>(usual.rope.scaling).factor == 16);
    CHECK(layers_of(read_and_written(folder, cwm + first), has_window) == "1000");
    // transformers' token, if the vocabulary has it; transformers takes no folder with null
    DecoderConfig tokens = usual;
    CHECK(hub_config_of(tokens).find("bos_token_id")->text() == "0");
    tokens.vocab = 128001;
    CHECK(hub_config_of(tokens).find("bos_token_id")->text() == "128000");
}
