// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face folders: values, missing keys, refusals, and writing it again.
#include "coeus/models/hub_model.hpp"

#include "coeus/base/text.hpp"
#include "coeus/file/hub_json.hpp"
#include "coeus/hub/hub.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/registry.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>

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
        CHECK(m.grouped() == GroupedAttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 24});
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

namespace {

// RoPE's keys in each place where transformers 5.24 reads them, with the same meaning for every family.
struct RopeCase {
    const char* keys;
    double theta;  // 0: the default of the family
    RopeScaling scaling;
};
// four_layers() with as many heads of keys and values as of queries, which latent attention needs
std::string four_equal_heads(const std::string& architecture) {
    const std::string two = R"("num_key_value_heads": 2)";
    std::string text = four_layers(architecture);
    return text.replace(text.find(two), two.size(), R"("num_key_value_heads": 4)");
}

const YarnScaling by_four = {.factor = 4, .original_positions = 64};
const std::string yarn_by_four =
    R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "rope_theta": 5e5})";

}  // namespace

TEST_CASE("config.json: RoPE is read in every place where transformers reads it") {
    const std::vector<RopeCase> cases = {
        {R"("rope_theta": 5e5)", 5e5, {}},
        {R"("rope_scaling": null, "rope_parameters": {"rope_theta": 5e5})", 5e5, {}},
        {R"("rope_scaling": {"rope_type": "default", "rope_theta": 5e5})", 5e5, {}},
        {R"("rope_scaling": {}, "rope_parameters": {"rope_theta": 5e5, "type": "default"})", 5e5, {}},
        {R"("rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000}, "rope_scaling": {"type": "default"})",
         5e5,
         {}},
        {R"("rope_theta": 5e5, "rope_scaling": {"type": "yarn", "rope_type": "yarn", "factor": 4,
            "original_max_position_embeddings": 64, "finetuned": true, "mscale": null})",
         5e5, by_four},
        // the original length beside the object, or the longest sequence
        {R"("original_max_position_embeddings": 64, "rope_theta": 5e5, "rope_scaling": {"type": "yarn",
            "factor": 4})",
         5e5, by_four},
        {R"("original_max_position_embeddings": 64, "rope_parameters": {"rope_type": "yarn", "factor": 4,
            "original_max_position_embeddings": 64, "rope_theta": 5e5})",
         5e5, by_four},
        {R"("rope_theta": 5e5, "rope_parameters": {"rope_type": "yarn", "factor": 4})", 5e5,
         YarnScaling{.factor = 4, .original_positions = 256}},
        {R"("rope_theta": 5e5, "rope_parameters": {"rope_type": "llama3", "factor": 4, "low_freq_factor": 1,
            "high_freq_factor": 4})",
         5e5, Llama3Scaling{.factor = 4, .low_frequency = 1, .high_frequency = 4, .original_positions = 256}},
        // the quotient of the lengths
        {R"("rope_parameters": {"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 64,
            "rope_theta": 5e5})",
         5e5, by_four},
        {R"("original_max_position_embeddings": 64, "rope_theta": 5e5)", 5e5, {}}};
    for (const char* architecture :
         {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
          "Qwen3MoeForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM", "Llama4ForCausalLM"})
        for (const RopeCase& wanted : cases) {
            CAPTURE(architecture, wanted.keys);
            const TemporaryFolder folder;
            config_folder(folder,
                          fmt::format(R"("architectures": ["{}"], "hidden_size": 64, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 272,
                "head_dim": 16, "max_position_embeddings": 256, {})",
                                      architecture, wanted.keys));
            REQUIRE(message_of(folder.path()) == "read without complaint");
            const HubModel read = read_hub_model(folder.path());
            CHECK(read.config.rope.theta == wanted.theta);
            // without any object, gpt-oss is scaled
            const bool has_object = std::string(wanted.keys).find('{') != std::string::npos;
            if (has_object || std::string(architecture) != "GptOssForCausalLM")
                CHECK((read.config.rope.scaling == wanted.scaling));
            CHECK(read.unknown_keys.empty());
        }
}

TEST_CASE("config.json: settings of RoPE that do not agree, and unknown ones, are refused by name") {
    const TemporaryFolder folder;
    const auto refusal = [&](const std::string& keys) {
        return message_of(
            config_folder(folder, minimal_llama + R"(, "max_position_embeddings": 256, )" + keys));
    };
    const std::string plain = R"({"rope_type": "default", "rope_theta": 5e5})";
    for (const std::string& pair :
         {R"("rope_parameters": )" + plain + R"(, "rope_scaling": )" + yarn_by_four,
          R"("rope_parameters": )" + yarn_by_four + R"(, "rope_scaling": )" + plain})
        CHECK_THAT(
            refusal(pair),
            Contains("rope_scaling and rope_parameters are two forms of the same settings, but they do "
                     "not agree; transformers takes rope_scaling alone"));
    // the same scaling, but transformers would lose theta
    CHECK_THAT(refusal(R"("rope_parameters": )" + plain + R"(, "rope_scaling": {"type": "default"})"),
               Contains("loses rope_parameters.rope_theta = 500000.0: write it in rope_scaling too"));
    CHECK(refusal(R"("rope_theta": 5e5, "rope_parameters": )" + plain +
                  R"(, "rope_scaling": {"type": "default"})") == "read without complaint");
    CHECK_THAT(refusal(R"("rope_theta": 1e4, "rope_parameters": )" + plain),
               EndsWith("rope_theta is 10000.0, but rope_parameters.rope_theta is 500000.0: they must agree; "
                        "correct or remove one of the two"));
    CHECK_THAT(refusal(R"("original_max_position_embeddings": 128, "rope_parameters": )" + yarn_by_four),
               Contains("original_max_position_embeddings is 128, but "
                        "rope_parameters.original_max_position_embeddings is 64"));
    CHECK_THAT(refusal(R"("rope_scaling": {"type": "yarn", "rope_type": "default", "factor": 4})"),
               Contains("rope_scaling.rope_type is \"default\", but rope_scaling.type is \"yarn\""));
    for (const std::string object : {"rope_scaling", "rope_parameters"}) {
        const auto with = [&](const std::string& keys) {
            return refusal('"' + object + R"(": {)" + keys + "}");
        };
        CHECK_THAT(with(R"("type": "yarn", "factor": 4, "beta_fsat": 3)"),
                   EndsWith(object + ".beta_fsat is not a key of RoPE of type \"yarn\"; did you mean "
                                     "\"beta_fast\"? Otherwise remove it"));
        CHECK_THAT(with(R"("type": "default", "factor": 4)"),
                   Contains(object + ".factor is not a key of RoPE of type \"default\""));
        CHECK_THAT(with(R"("full_attention": {"rope_type": "default"}, "sliding_attention": null)"),
                   Contains(object + " gives each type of layer its own RoPE (full_attention), but this "
                                     "architecture has one for all"));
        CHECK_THAT(refusal('"' + object + R"(": "linear")"), Contains(object + " must be an object"));
        CHECK(with(R"("type": "default", "factor": null)") == "read without complaint");
    }
}

TEST_CASE(
    "config.json: model_type stands for an architecture that is not named, and must not contradict it") {
    const TemporaryFolder folder;
    const std::string sizes = minimal_llama.substr(minimal_llama.find(',') + 1);
    for (const ModelFamily& family : model_families())
        for (size_t i = 0; i < family.model_types.size(); ++i)
            for (const std::string& names : {std::string(), std::string(R"("architectures": null, )"),
                                             std::string(R"("architectures": [], )")}) {
                const std::string type = fmt::format(R"("model_type": "{}")", family.model_types[i]);
                CAPTURE(names, type);
                write_file(folder / "config.json", "{" + names + type + "}");
                CHECK(hub_architecture(model_families(), JsonDocument::read(folder / "config.json").root()) ==
                      family.architectures[i]);
            }
    CHECK(model_from_hub(config_folder(folder, R"("model_type": "llama", )" + sizes)).family == "llama3");
    CHECK(model_from_hub(
              config_folder(
                  folder,
                  R"("model_type": "mistral", "architectures": null, "num_key_value_heads": 4, )" + sizes))
              .head_sizes()
              .window == 4096);
    CHECK(message_of(config_folder(folder, R"("model_type": "llama", )" + minimal_llama)) ==
          "read without complaint");
    // a type of another program, as in the folder of Kimi K2
    CHECK(message_of(config_folder(folder, R"("model_type": "kimi", )" + minimal_llama)) ==
          "read without complaint");
    CHECK_THAT(message_of(config_folder(folder, R"("model_type": "mistral", )" + minimal_llama)),
               Contains("architectures is LlamaForCausalLM, but model_type is \"mistral\", the type of "
                        "MistralForCausalLM, by which transformers goes: correct one of the two"));
    CHECK_THAT(message_of(config_folder(folder, R"("model_type": "gemma", )" + sizes)),
               Contains("model_type must be one of ") && Contains("llama, ") &&
                   Contains("because architectures names none"));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": ["A", "B"])")),
               Contains("architectures must name one architecture"));
    CHECK_THAT(message_of(config_folder(folder, sizes)),
               Contains("neither architectures nor model_type says which model this is"));
}

TEST_CASE("config.json: the family of a folder, for decks that name none") {
    const TemporaryFolder folder;
    CHECK(family_of_folder(folder.path()).empty());
    CHECK(family_of_folder(config_folder(folder, minimal_llama)) == "llama3");
    CHECK(family_of_folder(config_folder(folder, four_layers("Qwen3MoeForCausalLM"))) == "qwen3");
    for (const char* unknown : {R"("architectures": ["GemmaForCausalLM"])", "", "\"broken"})
        CHECK(family_of_folder(config_folder(folder, unknown)).empty());
}

TEST_CASE("config.json: what Python and transformers write and JSON or other programs do not") {
    const TemporaryFolder folder;
    // numbers that are not finite
    CHECK(with_quoted_numbers(R"({"a": NaN, "b": [-Infinity, Infinity], "c\"NaN": "\\", "d": "NaN"})") ==
          R"({"a": "NaN", "b": ["-Infinity", "Infinity"], "c\"NaN": "\\", "d": "NaN"})");
    config_folder(folder, minimal_llama + R"(, "initializer_range": NaN, "attention_dropout": -Infinity)");
    CHECK(read_hub_model(folder.path()).unknown_keys.empty());
    CHECK_THAT(message_of(config_folder(folder, minimal_llama + R"(, "rms_norm_eps": Infinity)")),
               Contains("rms_norm_eps must be a number, is \"Infinity\""));
    // another name of silu, in each family
    for (const char* architecture :
         {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
          "Qwen3MoeForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM", "Llama4ForCausalLM"}) {
        CAPTURE(architecture);
        const auto with = [&](const std::string& act) {
            return message_of(config_folder(
                folder, four_equal_heads(architecture) + R"(, "head_dim": 16, "hidden_act": ")" + act + '"'));
        };
        CHECK(with("swish") == "read without complaint");
        CHECK_THAT(with("gelu"), Contains("hidden_act must be \"silu\""));
    }
    // null is false, not the default
    const std::string v3 = four_equal_heads("DeepseekV3ForCausalLM");
    CHECK(model_from_hub(config_folder(folder, v3)).moe.normalise);
    const DecoderConfig nulls =
        model_from_hub(config_folder(folder, v3 + R"(, "norm_topk_prob": null, "rope_interleave": null)"));
    CHECK_FALSE(nulls.moe.normalise);
    CHECK(nulls.rope.layout == RopeLayout::half_split);
    CHECK(model_from_hub(
              config_folder(folder, four_layers("GptOssForCausalLM") + R"(, "attention_bias": null)"))
              .grouped()
              .bias == AttentionBias::none);
    const DecoderConfig llama4 = model_from_hub(config_folder(
        folder,
        four_layers("Llama4ForCausalLM") + R"(, "use_qk_norm": null, "attn_temperature_tuning": null)"));
    CHECK(llama4.grouped().qk_norm == QkNorm::none);
    CHECK_FALSE(bool(llama4.grouped().temperature));
    // an empty rope_scaling is none: gpt-oss has its usual one
    CHECK((model_from_hub(config_folder(folder, four_layers("GptOssForCausalLM") + R"(, "rope_scaling": {})"))
               .rope.scaling ==
           RopeScaling(YarnScaling{.factor = 32, .original_positions = 4096, .truncate = false})));
    CHECK((
        model_from_hub(config_folder(folder, four_layers("GptOssForCausalLM") + R"(, "rope_parameters": {})"))
            .rope.scaling == RopeScaling{}));
}

TEST_CASE("config.json: DeepSeek V3 with the softmax of torchtitan's flavour 16B") {
    const TemporaryFolder folder;
    const auto keys = [&](const std::string& more) {
        return config_folder(folder, four_equal_heads("DeepseekV3ForCausalLM") + R"(, "norm_topk_prob": false,
            "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "scoring_func": )" +
                                         more);
    };
    const DecoderConfig m = model_from_hub(keys(R"("softmax", "topk_method": "greedy")"));
    CHECK(m.moe.score == ScoreFunction::softmax);
    CHECK(m.moe.keeps_bias);
    CHECK_FALSE(m.moe.normalise);
    CHECK(m.moe.groups == 1);  // a greedy choice has no groups
    CHECK(model_from_hub(keys(R"("softmax")")).moe.groups == 4);
    CHECK(model_from_hub(keys(R"("sigmoid")")).moe.score == ScoreFunction::sigmoid);
    CHECK_THAT(message_of(keys(R"("sigmoid", "topk_method": "greedy")")), Contains("topk_method must be"));
    CHECK_THAT(message_of(keys(R"("tanh")")), Contains("scoring_func must be \"sigmoid\" or \"softmax\""));
    write_json(hub_config_of(m), folder / "config.json");
    CHECK(model_from_hub(folder.path()) == m);
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
    CHECK(m.head_sizes().kv_heads == 4);
    CHECK(m.head_sizes().head_dim == 16);
    CHECK(m.rope.theta == 10000);
    CHECK(m.norm_eps == 1e-6);
    CHECK(m.max_seq_len == 2048);
    CHECK_FALSE(m.tied);
    CHECK((m.rope.scaling == RopeScaling{}));
    CHECK(
        model_from_hub(config_folder(folder, minimal_llama + R"(, "head_dim": 20)")).head_sizes().head_dim ==
        20);
    CHECK(model_from_hub(config_folder(folder, minimal_llama + R"(, "num_key_value_heads": null)"))
              .head_sizes()
              .kv_heads == 4);
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
        "text": {"rope_period": 8})");
    CHECK(read_hub_model(folder.path()).unknown_keys ==
          std::vector<std::string>{"sliding_window", "attn_scale", "text"});
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

TEST_CASE("config.json: latent attention has as many key/value heads as heads") {
    const TemporaryFolder folder;
    Json json = hub_config_of(find_flavor(find_family("deepseek_v3"), "debugmodel"));
    write_json(json, folder / "config.json");
    CHECK(message_of(folder.path()) == "read without complaint");
    json.set("num_key_value_heads", 2);
    write_json(json, folder / "config.json");
    CHECK_THAT(
        message_of(folder.path()),
        EndsWith("config.json: num_key_value_heads must be 16, as num_attention_heads (each head has its "
                 "own keys and values), is 2"));
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
            model.ffn_rule.reset();                                // config.json has the width as a number
            if (model.moe.experts > 0 && !model.moe.keeps_bias) {  // no place for balancing biases
                model.moe.balance_rate = 0;
                set_router_aux_loss_coef(model, family.name == "olmoe" ? 0.01 : 0.001);
                if (model.is_latent()) model.moe.sequence_balance = 0.001;
            }
            if (model.is_latent())  // it has none
                model.latent().latent_norm_eps = LatentAttentionConfig().latent_norm_eps;
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
    CHECK(refusal([](DecoderConfig& m) { m.grouped().value_dim = 8; }) ==
          "a model with v_head_dim = 8 cannot be written as a Hugging Face folder: LlamaForCausalLM has 0");
    CHECK_THAT(refusal([](DecoderConfig& m) { m.rope.layout = RopeLayout::half_split; }),
               Contains("a model with rope_layout = \"half_split\" cannot be written"));
    CHECK_THAT(refusal([](DecoderConfig& m) { std::get<Llama3Scaling>(m.rope.scaling).factor = 0.5; }),
               Contains("config.json: rope_scaling.factor must be at least 1, is 0.5"));
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
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": ["GemmaForCausalLM"])")),
               Contains("architecture GemmaForCausalLM is not implemented yet; implemented: " +
                        join(hub_architectures(), ", ")));
    for (const auto& [architecture, needs] :
         {std::pair("Gemma2ForCausalLM", "caps of the scores of attention and of logits"),
          std::pair("Qwen3NextForCausalLM", "the gated delta rule"),
          std::pair("MambaForCausalLM", "state-space layers")})
        CHECK_THAT(
            message_of(config_folder(folder, fmt::format(R"("architectures": ["{}"])", architecture))),
            Contains(fmt::format("architecture {} is not implemented yet, because it needs {}; implemented: ",
                                 architecture, needs)));
    CHECK(is_hub_folder(folder.path()));
    CHECK_THAT(message_of(config_folder(folder, R"("architectures": [])")),
               Contains("neither architectures nor model_type says which model this is"));
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
    const auto windowed = [](DecoderConfig& m) { m.grouped().window = 8; };
    const auto alternating = [](DecoderConfig& m) { m.grouped().window = 8, m.windowed.period = 2; };
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
    CHECK(refusal("qwen2", [](DecoderConfig& m) { m.grouped().bias = AttentionBias::none; }) ==
          "a model with attention_bias = \"none\" cannot be written as a Hugging Face folder: "
          "Qwen2ForCausalLM has \"qkv\"");
    CHECK(refusal("mistral", [](DecoderConfig& m) { m.grouped().qk_norm = QkNorm::before_rope; }) ==
          "a model with qk_norm = \"before_rope\" cannot be written as a Hugging Face folder: "
          "MistralForCausalLM has \"none\"");
    CHECK(refusal("qwen3", [](DecoderConfig& m) { m.grouped().sinks = true; }) ==
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
        CHECK(refusal(family, [](DecoderConfig& m) { m.grouped().rope_fraction = 0.5; }) ==
              fmt::format("a model with partial_rotary_factor = 0.5 cannot be written as a Hugging Face "
                          "folder: {} has 1.0",
                          architecture));
    CHECK(refusal("qwen3", [](DecoderConfig& m) { m.initial_values = InitialValues::of_2025; }) == "written");
}

TEST_CASE("config.json: a model with fewer layers than the flavour is written if the flavour is") {
    const auto is_written = [](const DecoderConfig& model) {
        try {
            (void)hub_config_of(model);
            return true;
        } catch (const ConfigError&) {
            return false;
        }
    };
    int written = 0;
    for (const ModelFamily& family : model_families())
        for (const DecoderConfig& flavor : family.flavors) {
            if (!family.hub_keys || !is_written(flavor)) continue;
            // config.json does not say what chunks, experts (Llama 4) and windows (CWM) would be if no layer
            // has them
            for (int64_t layers = family.name == "llama4" || family.name == "cwm" ? 2 : 1;
                 layers < std::min<int64_t>(flavor.layers, 7); ++layers) {
                DecoderConfig shorter = flavor;
                shorter.layers = layers;
                CAPTURE(family.name, flavor.flavor, layers);
                CHECK(is_written(shorter));
                ++written;
            }
        }
    CHECK(written > 50);
}
