// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face folders: values, missing keys, refusals, and writing it again.
#include "coeus/models/hub_model.hpp"

#include "coeus/io/hub.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/registry.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

/// Writes a config.json with the text of a JSON object without its braces.
std::string config_folder(const TemporaryFolder& folder, const std::string& body) {
    write_file(folder / "config.json", "{" + body + "}");
    return folder.path();
}

const std::string minimal =
    R"("architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
       "intermediate_size": 96, "vocab_size": 272)";

std::string message_of(const std::string& folder, const std::string& family = "") {
    try {
        model_from_hub(folder, family);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "read without complaint";
}

}  // namespace

TEST_CASE("config.json: both forms give the same numbers") {
    const TemporaryFolder now, before;
    const std::string sizes =
        minimal + R"(, "num_key_value_heads": 2, "head_dim": 24, "max_position_embeddings": 512,
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
        CHECK(m.rope.scaling ==
              RopeScaling{.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_positions = 64});
        CHECK(read_hub_model(folder->path()).unknown_keys.empty());
    }
}

TEST_CASE("config.json: an old form of RoPE settings next to a new one is ignored") {
    const TemporaryFolder folder;
    const std::string now = R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5})";
    for (const char* before :
         {R"({"type": "yarn", "factor": 4})", R"({"rope_type": "llama3", "factor": 0})", R"("linear")"}) {
        CAPTURE(before);
        const std::string old = fmt::format(R"(, "rope_theta": 1e4, "rope_scaling": {})", before);
        const DecoderConfig m = model_from_hub(config_folder(folder, minimal + now + old));
        CHECK(m.rope.theta == 5e5);
        CHECK_FALSE(m.rope.scaling);
        CHECK(read_hub_model(folder.path()).unknown_keys.empty());
        CHECK_THAT(message_of(config_folder(folder, minimal + old)), Contains("rope_scaling"));
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
    const DecoderConfig m = model_from_hub(config_folder(folder, minimal));
    CHECK(m.attention.kv_heads == 4);
    CHECK(m.attention.head_dim == 16);
    CHECK(m.rope.theta == 10000);
    CHECK(m.norm_eps == 1e-6);
    CHECK(m.max_seq_len == 2048);
    CHECK_FALSE(m.tied);
    CHECK_FALSE(m.rope.scaling);
    CHECK(model_from_hub(config_folder(folder, minimal + R"(, "head_dim": 20)")).attention.head_dim == 20);
    CHECK(model_from_hub(config_folder(folder, minimal + R"(, "num_key_value_heads": null)"))
              .attention.kv_heads == 4);
}

TEST_CASE("config.json: the deck chooses the family if several have the architecture") {
    const TemporaryFolder folder;
    config_folder(folder, minimal);
    CHECK(model_from_hub(folder.path()).family == "llama3");
    for (const char* family : {"llama2", "llama3"})
        CHECK(model_from_hub(folder.path(), family).family == family);
    CHECK_THAT(message_of(folder.path(), "lama3"), Contains("did you mean \"llama3\"?"));
}

TEST_CASE("config.json: unknown keys are found, also within others") {
    const TemporaryFolder folder;
    config_folder(folder,
                  minimal + R"(, "transformers_version": "5", "torch_dtype": "bfloat16", "bos_token_id": 1)");
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    config_folder(folder, minimal + R"(, "sliding_window": 8, "attn_scale": null,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})");
    CHECK(read_hub_model(folder.path()).unknown_keys ==
          std::vector<std::string>{"sliding_window", "attn_scale", "rope_parameters.partial_rotary_factor"});
    CHECK(message_of(folder.path()) == "read without complaint");
}

TEST_CASE("config.json: every flavour of every family survives writing and reading") {
    for (const ModelFamily& family : model_families())
        for (DecoderConfig model : family.flavors) {
            if (family.architectures.empty()) continue;  // registered by another test
            CAPTURE(family.name, model.flavor);
            const TemporaryFolder folder;
            write_json(hub_config_of(model), folder / "config.json");
            const DecoderConfig back = model_from_hub(folder.path(), family.name);
            CHECK(read_hub_model(folder.path()).unknown_keys.empty());
            model.flavor = "hf";
            model.ffn_rule.reset();  // config.json has the width as a number
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
    CHECK_THAT(refusal([](DecoderConfig& m) { m.rope.scaling->factor = 0.5; }),
               Contains("config.json: rope_parameters.factor must be at least 1, is 0.5"));
}

TEST_CASE("config.json: unsupported models and errors are reported in words") {
    const TemporaryFolder folder;
    CHECK_THAT(message_of(folder.path()), Contains("config.json: this file does not exist"));
    CHECK_FALSE(is_hub_folder(folder.path()));
    CHECK_THAT(
        message_of(config_folder(folder, R"("architectures": ["GptOssForCausalLM"])")),
        Contains("architecture GptOssForCausalLM is not implemented yet; implemented: LlamaForCausalLM, "
                 "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"));
    CHECK(is_hub_folder(folder.path()));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": [])")),
               Contains("architectures must name one architecture"));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": ["LlamaForCausalLM"])")),
               Contains("hidden_size"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "num_key_value_heads": 0)")),
               Contains("num_key_value_heads must be at least 1"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "vocab_size": "many")")),
               Contains("vocab_size"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "mlp_bias": true)")),
               Contains("mlp_bias must be false (biases are not implemented yet)"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "hidden_act": "gelu")")),
               Contains("hidden_act must be \"silu\""));
    CHECK_THAT(
        message_of(config_folder(folder, minimal + R"(, "rope_scaling": {"type": "yarn", "factor": 4})")),
        Contains("rope_scaling of type \"yarn\" is not implemented yet"));
    CHECK_THAT(message_of(config_folder(folder, minimal + R"(, "rope_parameters": {"rope_type": "llama3"})")),
               Contains("rope_parameters.factor"));
    const auto scaled = [&](const char* factor, const char* low, const char* high, const char* positions) {
        return message_of(config_folder(
            folder, minimal + fmt::format(R"(, "rope_scaling": {{"rope_type": "llama3", "factor": {},
                        "low_freq_factor": {}, "high_freq_factor": {},
                        "original_max_position_embeddings": {}}})",
                                          factor, low, high, positions)));
    };
    CHECK_THAT(scaled("8", "1", "4", "8192"), Contains("read without complaint"));
    CHECK_THAT(scaled("0", "1", "4", "8192"), Contains("rope_scaling.factor must be at least 1, is 0"));
    CHECK_THAT(scaled("8", "0", "4", "8192"), Contains("low_freq_factor must be greater than 0"));
    CHECK_THAT(scaled("8", "1", "1", "8192"),
               Contains("high_freq_factor must be greater than low_freq_factor, is 1"));
    CHECK_THAT(scaled("8", "1", "4", "0"), Contains("original_max_position_embeddings must be at least 1"));
    CHECK_THAT(message_of(config_folder(folder, "\"broken")), Contains("config.json"));
}
