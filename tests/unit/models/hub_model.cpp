// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face folders: values, missing keys, refusals, and writing it again.
#include "coeus/models/hub_model.hpp"

#include "coeus/io/hub.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/registry.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Catch::EndsWith;

TEST_CASE("config.json: both forms give the same numbers") {
    const TemporaryFolder now, before;
    const std::string sizes =
        minimal_llama + R"(, "num_key_value_heads": 2, "head_dim": 24, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": true)";
    const std::string scaling = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64)";
    config_folder(now, sizes + R"(, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", )" +
                           scaling + "}");
    config_folder(before, sizes + R"(, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", )" +
                              scaling + "}");
    for (const TemporaryFolder* folder : {&now, &before}) {
        const DecoderConfig m = model_from_hub(folder->path());
        CHECK(m.flavor == "hf");
        CHECK(m.dim == 64);
        CHECK(m.layers == 2);
        CHECK(m.attention == AttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 24});
        CHECK(m.feed_forward.hidden == 96);
        CHECK(m.vocab == 272);
        CHECK(m.max_seq_len == 512);
        CHECK(m.rope.theta == 500000);
        CHECK(m.norm_eps == 1e-5);
        CHECK(m.tied);
        CHECK((m.rope.scaling ==
               RopeScaling(Llama3Scaling{
                   .factor = 8, .low_frequency = 1, .high_frequency = 4, .original_positions = 64})));
        CHECK(read_hub_model(folder->path()).unknown_keys.empty());
    }
}

TEST_CASE("config.json: an old form of RoPE settings next to a new one is ignored") {
    const TemporaryFolder folder;
    const std::string now = R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5})";
    for (const char* before :
         {R"({"type": "yarn", "factor": 0})", R"({"rope_type": "llama3", "factor": 0})", R"("linear")"}) {
        CAPTURE(before);
        const std::string old = fmt::format(R"(, "rope_theta": 1e4, "rope_scaling": {})", before);
        const DecoderConfig m = model_from_hub(config_folder(folder, minimal_llama + now + old));
        CHECK(m.rope.theta == 5e5);
        CHECK((m.rope.scaling == RopeScaling{}));
        CHECK(read_hub_model(folder.path()).unknown_keys.empty());
        CHECK_THAT(message_of(config_folder(folder, minimal_llama + old)), Contains("rope_scaling"));
    }
}

TEST_CASE("config.json: the family that a deck names is used if it has the architecture") {
    std::vector<ModelFamily> families(3);
    families[0] = {.name = "first", .architectures = {"A"}};
    families[1] = {.name = "second", .architectures = {"A"}};
    families[2] = {.name = "third", .architectures = {"B"}};
    const Json json = Json::object().set("architectures", Json::array().push("A"));
    const JsonView config(json, "config.json");
    CHECK(claimed_family(families, config, "").name == "second");
    CHECK(claimed_family(families, config, "first").name == "first");
    for (const char* other : {"third", "fourth"})
        CHECK_THROWS_WITH(claimed_family(families, config, other),
                          fmt::format("model.name = \"{}\": config.json has architecture A, which belongs to "
                                      "model.name = \"second\"",
                                      other));
}

TEST_CASE("config.json: keys that old files lack have their defaults") {
    const TemporaryFolder folder;
    const DecoderConfig m = model_from_hub(config_folder(folder, minimal_llama));
    CHECK(m.attention.kv_heads == 4);
    CHECK(m.attention.head_dim == 16);
    CHECK(m.rope.theta == 10000);
    CHECK(m.norm_eps == 1e-6);
    CHECK(m.max_seq_len == 2048);
    CHECK_FALSE(m.tied);
    CHECK((m.rope.scaling == RopeScaling{}));
    CHECK(model_from_hub(config_folder(folder, minimal_llama + R"(, "head_dim": 20)")).attention.head_dim ==
          20);
    CHECK(model_from_hub(config_folder(folder, minimal_llama + R"(, "num_key_value_heads": null)"))
              .attention.kv_heads == 4);
}

TEST_CASE("config.json: the deck chooses the family if several have the architecture") {
    const TemporaryFolder folder;
    config_folder(folder, minimal_llama);
    CHECK(model_from_hub(folder.path()).family == "llama3");
    for (const char* family : {"llama2", "llama3"})
        CHECK(model_from_hub(folder.path(), family).family == family);
    CHECK_THAT(message_of(folder.path(), "lama3"), Contains("did you mean \"llama3\"?"));
}

TEST_CASE("config.json: unknown keys are found, also within others") {
    const TemporaryFolder folder;
    config_folder(
        folder,
        minimal_llama + R"(, "transformers_version": "5", "torch_dtype": "bfloat16", "bos_token_id": 1)");
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    config_folder(folder, minimal_llama + R"(, "sliding_window": 8, "attn_scale": null,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "rope_period": 8})");
    CHECK(read_hub_model(folder.path()).unknown_keys ==
          std::vector<std::string>{"sliding_window", "attn_scale", "rope_parameters.rope_period"});
    CHECK(message_of(folder.path()) == "read without complaint");
}

TEST_CASE("config.json: RoPE of a part of a head is refused") {
    const TemporaryFolder folder;
    const auto read_with = [&](const std::string& keys) {
        config_folder(folder, minimal_llama + ", " + keys);
        return message_of(folder.path());
    };
    const std::string rule =
        " must be 1 (the architecture fixes the columns of a head that RoPE rotates), is 0.5";
    const std::string key = R"("partial_rotary_factor": )", path = "partial_rotary_factor";
    CHECK_THAT(read_with(key + "0.5"), EndsWith(": " + path + rule));
    for (const std::string part : {"rope_parameters", "rope_scaling"}) {
        CAPTURE(part);
        const std::string begin = '"' + part + R"(": {"rope_type": "default", )" + key;
        CHECK_THAT(read_with(begin + "0.5}"), EndsWith(": " + part + "." + path + rule));
        CHECK(read_with(begin + "1}") == "read without complaint");
        CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    }
    for (const char* value : {"1", "1.0", "null"}) CHECK(read_with(key + value) == "read without complaint");
}

TEST_CASE("config.json: every flavour of every family survives writing and reading") {
    for (const ModelFamily& family : model_families())
        for (DecoderConfig model : family.flavors) {
            if (family.architectures.empty()) continue;  // registered by another test
            CAPTURE(family.name, model.flavor);
            const TemporaryFolder folder;
            if (model.moe.score == ScoreFunction::softmax && model.moe.groups > 1) {
                CHECK_THROWS_WITH(
                    hub_config_of(model),
                    Contains("a model with moe.num_expert_groups = 8 cannot be written as a Hugging Face "
                             "folder: DeepseekV2ForCausalLM has 1"));
                continue;
            }
            write_json(hub_config_of(model), folder / "config.json");
            const DecoderConfig back = model_from_hub(folder.path(), family.name);
            CHECK(read_hub_model(folder.path()).unknown_keys.empty());
            model.flavor = "hf";
            model.ffn_rule.reset();  // config.json has the width as a number
            model.attention.latent_norm_eps = AttentionConfig().latent_norm_eps;  // it has none
            CHECK(back == model);
        }
}

TEST_CASE("config.json: a model that it cannot describe is refused by name") {
    const DecoderConfig plain = find_flavor(find_family("llama3"), "debugmodel");
    const auto refusal = [&](const auto& change) {
        DecoderConfig model = plain;
        change(model);
        try {
            hub_config_of(model);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string("written");
    };
    CHECK(refusal([](DecoderConfig&) {}) == "written");
    CHECK(refusal([](DecoderConfig& m) { m.norm_type = NormType::layer_norm; }) ==
          "a model with norm_type = \"layernorm\" cannot be written as a Hugging Face folder: "
          "LlamaForCausalLM has \"rmsnorm\"");
    CHECK(refusal([](DecoderConfig& m) { m.attention.value_dim = 8; }) ==
          "a model with v_head_dim = 8 cannot be written as a Hugging Face folder: LlamaForCausalLM has 0");
    CHECK_THAT(refusal([](DecoderConfig& m) { m.rope.layout = RopeLayout::half_split; }),
               Contains("a model with rope_layout = \"half_split\" cannot be written"));
    CHECK_THAT(refusal([](DecoderConfig& m) { std::get<Llama3Scaling>(m.rope.scaling).factor = 0.5; }),
               Contains("config.json: rope_parameters.factor must be at least 1, is 0.5"));
}

TEST_CASE("config.json: unsupported models and errors are reported in words") {
    const TemporaryFolder folder;
    CHECK_THAT(message_of(folder.path()),
               Contains("config.json: this file does not exist; a Hugging Face folder has config.json"));
    CHECK_THAT(message_of("meta-llama/Llama-3.2-1B"), Contains("`hf download meta-llama/Llama-3.2-1B "));
    const TemporaryFolder tokenizer;
    write_file(tokenizer / "tokenizer.json", "{}");
    CHECK_THAT(message_of(tokenizer.path()), Contains(" has a tokenizer and no model"));
    CHECK_FALSE(is_hub_folder(folder.path()));
    CHECK_THAT(
        message_of(config_folder(folder, R"("architectures": ["GemmaForCausalLM"])")),
        Contains("architecture GemmaForCausalLM is not implemented yet; implemented: DeepseekV3ForCausalLM, "
                 "DeepseekV2ForCausalLM, GptOssForCausalLM, LlamaForCausalLM, Llama4ForCausalLM, "
                 "Llama4ForConditionalGeneration, "
                 "MistralForCausalLM"));
    CHECK(is_hub_folder(folder.path()));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": [])")),
               Contains("architectures must name one architecture"));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": ["LlamaForCausalLM"])")),
               Contains("hidden_size"));
    CHECK_THAT(message_of(config_folder(folder, minimal_llama + R"(, "num_key_value_heads": 0)")),
               Contains("num_key_value_heads must be at least 1"));
    CHECK_THAT(message_of(config_folder(folder, minimal_llama + R"(, "vocab_size": "many")")),
               Contains("vocab_size"));
    CHECK_THAT(message_of(config_folder(folder, minimal_llama + R"(, "mlp_bias": true)")),
               Contains("mlp_bias must be false (biases are not implemented yet)"));
    CHECK_THAT(message_of(config_folder(folder, minimal_llama + R"(, "hidden_act": "gelu")")),
               Contains("hidden_act must be \"silu\""));
    CHECK_THAT(message_of(config_folder(
                   folder, minimal_llama + R"(, "rope_scaling": {"type": "longrope", "factor": 4})")),
               Contains("rope_scaling of type \"longrope\" is not implemented yet"));
    CHECK_THAT(
        message_of(config_folder(folder, minimal_llama + R"(, "rope_parameters": {"rope_type": "llama3"})")),
        Contains("rope_parameters.factor"));
    const auto scaled = [&](const char* factor, const char* low, const char* high, const char* positions) {
        return message_of(config_folder(
            folder, minimal_llama + fmt::format(R"(, "rope_scaling": {{"rope_type": "llama3", "factor": {},
                        "low_freq_factor": {}, "high_freq_factor": {},
                        "original_max_position_embeddings": {}}})",
                                                factor, low, high, positions)));
    };
    CHECK_THAT(scaled("8", "1", "4", "8192"), Contains("read without complaint"));
    CHECK_THAT(scaled("0", "1", "4", "8192"), Contains("rope_scaling.factor must be at least 1, is 0"));
    CHECK_THAT(scaled("8", "0", "4", "8192"), Contains("low_freq_factor must be greater than 0"));
    CHECK_THAT(scaled("8", "1", "1", "8192"),
               Contains("read without complaint"));  // no band in between, as in Llama 4
    CHECK_THAT(scaled("8", "2", "1", "8192"),
               Contains("high_freq_factor must be at least low_freq_factor, is 1"));
    CHECK_THAT(scaled("8", "1", "4", "0"), Contains("original_max_position_embeddings must be at least 1"));
    CHECK_THAT(message_of(config_folder(folder, "\"broken")), Contains("config.json"));
}

TEST_CASE("config.json: YaRN's keys, their defaults and their rules") {
    const TemporaryFolder folder;
    const auto rope = [&](const std::string& keys) {
        return config_folder(folder, minimal_llama + R"(, "rope_scaling": {"rope_type": "yarn")" + keys +
                                         R"(}, "max_position_embeddings": 512)");
    };
    const auto scaling = [&](const std::string& keys) {
        return std::get<YarnScaling>(model_from_hub(rope(keys)).rope.scaling);
    };
    CHECK(scaling(R"(, "factor": 4.0)") == YarnScaling{.factor = 4, .original_positions = 512});
    CHECK(scaling(R"(, "factor": 40, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2,
                   "truncate": false, "attention_factor": 1.5, "mscale": 1.0, "mscale_all_dim": 0.7)") ==
          YarnScaling{.factor = 40,
                      .original_positions = 64,
                      .beta_fast = 16,
                      .beta_slow = 2,
                      .truncate = false,
                      .attention_factor = 1.5,
                      .mscale = 1,
                      .mscale_all_dim = 0.7});
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    const auto refusal = [&](const std::string& keys) { return message_of(rope(keys)); };
    CHECK_THAT(refusal(""), Contains("rope_scaling.factor is missing"));
    CHECK_THAT(refusal(R"(, "factor": 0.5)"), Contains("rope_scaling.factor must be at least 1, is 0.5"));
    CHECK_THAT(refusal(R"(, "factor": 4, "beta_slow": 0)"),
               Contains("rope_scaling.beta_slow must be greater than 0, is 0"));
    CHECK_THAT(refusal(R"(, "factor": 4, "beta_fast": 0.5)"),
               Contains("rope_scaling.beta_fast must be at least beta_slow, is 0.5"));
    CHECK_THAT(refusal(R"(, "factor": 4, "mscale": -1)"),
               Contains("rope_scaling.mscale must be at least 0, is -1"));
    CHECK_THAT(refusal(R"(, "factor": 4, "truncate": 1)"), Contains("rope_scaling.truncate"));
}

TEST_CASE("config.json: a window that an architecture does not have is refused by name") {
    const auto refusal = [](const char* family, const auto& change) {
        DecoderConfig model = find_flavor(find_family(family), "debugmodel");
        change(model);
        try {
            hub_config_of(model);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string("written");
    };
    const auto windowed = [](DecoderConfig& m) { m.attention.window = 8; };
    const auto alternating = [](DecoderConfig& m) { m.attention.window = 8, m.windowed.period = 2; };
    for (const char* family : {"qwen2", "qwen3"}) {
        CHECK(refusal(family, windowed) == "written");
        CHECK(refusal(family, alternating) == "written");
    }
    CHECK(refusal("mistral", windowed) == "written");
    CHECK(refusal("mistral", alternating) ==
          "a model with window_period = 2 cannot be written as a Hugging Face folder: MistralForCausalLM has "
          "1");
    CHECK(
        refusal("llama3", windowed) ==
        "a model with sliding_window = 8 cannot be written as a Hugging Face folder: LlamaForCausalLM has 0");
    CHECK(refusal("qwen2", [](DecoderConfig& m) { m.attention.bias = AttentionBias::none; }) ==
          "a model with attention_bias = \"none\" cannot be written as a Hugging Face folder: "
          "Qwen2ForCausalLM has \"qkv\"");
    CHECK(refusal("mistral", [](DecoderConfig& m) { m.attention.qk_norm = QkNorm::before_rope; }) ==
          "a model with qk_norm = \"before_rope\" cannot be written as a Hugging Face folder: "
          "MistralForCausalLM has \"none\"");
    CHECK(refusal("qwen3", [](DecoderConfig& m) { m.attention.sinks = true; }) ==
          "a model with attention_sinks = true cannot be written as a Hugging Face folder: "
          "Qwen3ForCausalLM has false");
    // transformers rotates whole heads in all of these architectures
    for (const auto& [family, architecture] :
         std::vector<std::pair<const char*, const char*>>{{"llama3", "LlamaForCausalLM"},
                                                          {"llama4", "Llama4ForCausalLM"},
                                                          {"mistral", "MistralForCausalLM"},
                                                          {"qwen2", "Qwen2ForCausalLM"},
                                                          {"qwen3", "Qwen3ForCausalLM"},
                                                          {"gpt_oss", "GptOssForCausalLM"}})
        CHECK(refusal(family, [](DecoderConfig& m) { m.attention.rope_fraction = 0.5; }) ==
              fmt::format("a model with partial_rotary_factor = 0.5 cannot be written as a Hugging Face "
                          "folder: {} has 1.0",
                          architecture));
    CHECK(refusal("qwen3", [](DecoderConfig& m) { m.initial_values = InitialValues::of_2025; }) == "written");
}
