// SPDX-License-Identifier: Apache-2.0
// Granite, Cohere 2 and Qwen 2 with experts: the counts of published flavours, published config.json, and
// what is special about each.
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

// Reads, and reads again what is written of it.
DecoderConfig read_twice(const TemporaryFolder& folder, const std::string& body) {
    DecoderConfig m = model_from_hub(config_folder(folder, body));
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    write_json(hub_config_of(m), folder / "config.json");
    CHECK(model_from_hub(folder.path()) == m);
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    return m;
}

}  // namespace

TEST_CASE("factored families: parameters and active parameters of published flavours") {
    struct Counts {
        const char *family, *flavor;
        int64_t parameters, active;
    };
    for (const Counts& e : {Counts{"granite", "3.0-2B", 2533531648, 2533531648},
                            Counts{"granite", "3.0-8B", 8170848256, 8170848256},
                            Counts{"granite", "3.0-1B-A400M", 1334628352, 428658688},
                            Counts{"granite", "3.0-3B-A800M", 3298793472, 882874368},
                            Counts{"granite", "3.1-2B", 2533525504, 2533525504},
                            Counts{"granite", "3.1-8B", 8170835968, 8170835968},
                            Counts{"granite", "3.1-1B-A400M", 1334628352, 428658688},
                            Counts{"granite", "3.3-2B", 2533539840, 2533539840},
                            Counts{"granite", "3.3-8B", 8170864640, 8170864640},
                            Counts{"cohere2", "R7B", 8028033024, 8028033024},
                            Counts{"cohere2", "A", 111057580032, 111057580032},
                            Counts{"qwen2", "1.5-A2.7B", 14315784192, 2689173504},
                            Counts{"qwen2", "57B-A14B", 57408658944, 14249270784}}) {
        CAPTURE(e.family, e.flavor);
        const DecoderConfig& m = find_flavor(find_family(e.family), e.flavor);
        m.validate();
        CHECK(m.parameters() == e.parameters);
        CHECK(m.active_parameters() == e.active);
    }
}

TEST_CASE("factored families: published config.json gives the flavours") {
    struct Published {
        const char *family, *flavor, *body;
    };
    const std::array table = {
        Published{
            "granite", "3.0-2B",
            R"("architectures": ["GraniteForCausalLM"], "attention_bias": false, "attention_dropout": 0.1,
            "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
            "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
            "logits_scaling": 8.0, "max_position_embeddings": 4096, "mlp_bias": false, "model_type": "granite",
            "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0,
            "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000,
            "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.46.0.dev0",
            "use_cache": true, "vocab_size": 49155)"},
        Published{"granite", "3.0-1B-A400M",
                  R"("architectures": ["GraniteMoeForCausalLM"], "attention_bias": false,
            "attention_dropout": 0.1, "attention_multiplier": 0.015625, "bos_token_id": 0,
            "embedding_multiplier": 12.0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 1024,
            "initializer_range": 0.02, "intermediate_size": 512, "logits_scaling": 6.0,
            "max_position_embeddings": 4096, "model_type": "granitemoe", "num_attention_heads": 16,
            "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 8,
            "num_local_experts": 32, "output_router_logits": false, "pad_token_id": 0,
            "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000,
            "router_aux_loss_coef": 0.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
            "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 49155)"},
        Published{
            "cohere2", "R7B",
            R"("architectures": ["Cohere2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "bos_token_id": 5, "cache_implementation": "hybrid", "eos_token_id": 255001, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
            "layer_norm_eps": 1e-05, "layer_switch": 4, "logit_scale": 0.25, "max_position_embeddings": 8192,
            "model_type": "cohere2", "num_attention_heads": 32, "num_hidden_layers": 32,
            "num_key_value_heads": 8, "order_of_interleaved_layers": "local_attn_first", "pad_token_id": 0,
            "position_embedding_type": "rope_gptj", "rope_scaling": null, "rope_theta": 50000,
            "rotary_pct": 1.0, "sliding_window": 4096, "sliding_window_pattern": 4,
            "torch_dtype": "bfloat16", "transformers_version": "4.48.0.dev0", "use_cache": true,
            "use_embedding_sharing": true, "use_gated_activation": true, "use_parallel_block": true,
            "use_parallel_embedding": true, "vocab_size": 256000)"},
        Published{
            "qwen2", "1.5-A2.7B",
            R"("architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "decoder_sparse_step": 1, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 2048,
            "initializer_range": 0.02, "intermediate_size": 5632, "max_position_embeddings": 8192,
            "max_window_layers": 21, "model_type": "qwen2_moe", "moe_intermediate_size": 1408,
            "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
            "num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": false,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
            "shared_expert_intermediate_size": 5632, "sliding_window": 32768, "tie_word_embeddings": false,
            "torch_dtype": "bfloat16", "transformers_version": "4.39.0.dev0", "use_cache": true,
            "use_sliding_window": false, "vocab_size": 151936)"}};
    for (const auto& [family, flavor, body] : table) {
        CAPTURE(family, flavor);
        const TemporaryFolder folder;
        const DecoderConfig read = read_twice(folder, body);
        DecoderConfig expected = find_flavor(find_family(family), flavor);
        expected.flavor = "hf";
        // a flavour balances experts by biases
        expected.moe.balance_rate = read.moe.balance_rate;
        expected.moe.sequence_balance = read.moe.sequence_balance;
        CHECK(differences(read, expected).empty());
        CHECK(read == expected);
    }
}

TEST_CASE("config.json of Cohere 2: layers with a window have RoPE, whatever the list, and others have not") {
    const TemporaryFolder folder;
    std::string keys = four_layers("Cohere2ForCausalLM");
    const std::string of_rms = "rms_norm_eps";
    keys.replace(keys.find(of_rms), of_rms.size(), "layer_norm_eps");
    const auto layers = [&](const std::string& more) {
        std::string text;
        const DecoderConfig m = read_twice(folder, keys + more);
        for (int64_t i = 0; i < m.layers; ++i) {
            const GroupedAttentionConfig a = m.layer(i).grouped();
            text += fmt::format("{}{} ", a.window, a.rope ? " rope" : "");
        }
        return text;
    };
    CHECK(layers("") == "4096 rope 4096 rope 4096 rope 0 ");
    CHECK(layers(R"(, "sliding_window": 8, "sliding_window_pattern": 2)") == "8 rope 0 8 rope 0 ");
    CHECK(layers(R"(, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention",
                    "sliding_attention", "full_attention"])") == "0 8 rope 8 rope 0 ");
    CHECK(layers(R"(, "layer_types": ["full_attention", "full_attention", "full_attention",
                    "full_attention"])") == "0 0 0 0 ");
    CHECK_THAT(message_of(config_folder(folder, keys + R"(, "use_qk_norm": true)")),
               Contains("use_qk_norm must be false"));
}

TEST_CASE("config.json of Granite: the architecture follows from the experts, and factors from their keys") {
    const TemporaryFolder folder;
    const std::string factors = R"(, "embedding_multiplier": 6, "residual_multiplier": 0.5,
        "attention_multiplier": 0.1, "logits_scaling": 6)";
    for (const auto& [name, more, shared] :
         {std::tuple("GraniteForCausalLM", "", 0),
          {"GraniteMoeForCausalLM", R"(, "num_local_experts": 6, "num_experts_per_tok": 3)", 0},
          {"GraniteMoeSharedForCausalLM", R"(, "num_local_experts": 6, "shared_intermediate_size": 40)",
           40}}) {
        CAPTURE(name);
        const DecoderConfig m = read_twice(folder, four_layers(name) + factors + more);
        CHECK(m.embedding_scale == 6);
        CHECK(m.residual_scale == 0.5);
        CHECK(m.grouped().scale == 0.1);
        CHECK(m.logits_scale == 1.0 / 6);
        CHECK(m.moe.shared_hidden == shared);
        CHECK(hub_config_of(m).find("architectures")->text() == fmt::format(R"(["{}"])", name));
    }
    // transformers' defaults
    const DecoderConfig m = read_twice(folder, four_layers("GraniteForCausalLM"));
    CHECK(m.grouped().scale == 1);
    CHECK(m.residual_scale == 1);
    // 0 would mean 0 for readers, and another number here
    for (const char* key :
         {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"})
        for (const char* value : {"0", "-2"})
            CHECK_THAT(message_of(config_folder(folder, four_layers("GraniteForCausalLM") +
                                                            fmt::format(R"(, "{}": {})", key, value))),
                       Contains(fmt::format("{} must be greater than 0, is {}", key, value)));
    // a Llama has no place for a factor
    DecoderConfig llama = model_from_hub(config_folder(folder, four_layers("LlamaForCausalLM")));
    llama.residual_scale = 0.5;
    CHECK_THROWS_WITH(hub_config_of(llama), Contains("residual_scale"));
}

TEST_CASE("config.json of Qwen 2 with experts: windows in every other one of the first layers") {
    const TemporaryFolder folder;
    const auto windows = [&](const std::string& more) {
        const DecoderConfig m = read_twice(
            folder, four_layers("Qwen2MoeForCausalLM") + R"(, "num_experts": 6, "sliding_window": 8)" + more);
        CHECK(m.moe.shared_gate);
        CHECK(m.moe.shared_hidden == 5632);
        std::string text;
        for (int64_t i = 0; i < m.layers; ++i) text += m.layer(i).grouped().window > 0 ? '1' : '0';
        return text;
    };
    const std::string used = R"(, "use_sliding_window": true)";
    CHECK(windows("") == "0000");
    CHECK(windows(used) == "1010");
    CHECK(windows(used + R"(, "max_window_layers": 2)") == "1000");
    CHECK(windows(used + R"(, "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                     "full_attention"])") == "0110");
}
