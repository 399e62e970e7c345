// SPDX-License-Identifier: Apache-2.0
// config.json of families that differ from Llama in their positions: Phi 3 and 4, Ministral 3, Gemma 3.
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <map>
#include <string>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// What is read again of the config.json that we write.
DecoderConfig written_and_read(const DecoderConfig& model) {
    const TemporaryFolder folder;
    write_json(hub_config_of(model), folder / "config.json");
    HubModel back = read_hub_model(folder.path());
    CHECK(back.unknown_keys.empty());
    back.config.flavor = model.flavor;
    return back.config;
}

}  // namespace

TEST_CASE(
    "Phi, Ministral and Gemma: flavours have the numbers of parameters of their folders, and a config.json") {
    const std::map<std::string, int64_t> expected = {
        {"phi3 3-mini-4k", 3'821'079'552},   {"phi3 3-medium-4k", 13'960'238'080},
        {"phi3 4-mini", 3'836'021'760},      {"phi3 4", 14'659'507'200},
        {"phi3 4-mini-128k", 3'836'021'760}, {"ministral3 3B", 3'429'006'336},
        {"ministral3 8B", 8'489'553'920},    {"ministral3 14B", 13'506'073'600},
        {"gemma3 270M", 268'098'176},        {"gemma3 1B", 999'885'952},
        {"gemma3 4B", 3'880'263'168},        {"gemma3 12B", 11'766'034'176},
        {"gemma3 27B", 27'009'346'304}};
    for (const std::string family : {"phi3", "ministral3", "gemma3"})
        for (const DecoderConfig& flavor : find_family(family).flavors) {
            CAPTURE(family, flavor.flavor);
            CHECK(written_and_read(flavor) == flavor);
            const auto found = expected.find(family + " " + flavor.flavor);
            if (flavor.flavor != "debugmodel") {
                REQUIRE(found != expected.end());
                CHECK(flavor.parameters() == found->second);
            }
        }
}

TEST_CASE("config.json of Phi 3: folders as they are published") {
    const TemporaryFolder folder;
    const std::string sizes = R"("architectures": ["Phi3ForCausalLM"], "model_type": "phi3",
        "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 272,
        "attention_bias": false, "attention_dropout": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-05, "rope_theta": 10000.0)";
    const auto model = [&](const std::string& keys) {
        const HubModel read = read_hub_model(config_folder(folder, sizes + keys));
        CHECK(read.unknown_keys.empty());
        CHECK(written_and_read(read.config) == read.config);
        return read.config;
    };
    const DecoderConfig mini = model(R"(, "max_position_embeddings": 4096, "rope_scaling": null,
        "original_max_position_embeddings": 4096, "sliding_window": 2047, "tie_word_embeddings": false)");
    CHECK(mini.head_sizes().window == 2047);
    CHECK((mini.rope == RopeConfig{.theta = 10000, .layout = RopeLayout::half_split}));
    // LongRoPE under all its names; the part of a head has a key of its own
    const std::string lengths =
        R"(, "max_position_embeddings": 131072, "original_max_position_embeddings": 4096)";
    const auto longrope = [](const std::string& type, int pairs) {
        std::string factors = "1.0";
        for (int i = 1; i < pairs; ++i) factors += fmt::format(", 1.{}", i);
        return fmt::format(
            R"(, "rope_scaling": {{"long_factor": [{0}], "short_factor": [{0}], "type": "{1}"}})", factors,
            type);
    };
    const auto scaling_of = [](const DecoderConfig& m) { return std::get<LongRopeScaling>(m.rope.scaling); };
    for (const char* type : {"longrope", "su", "yarn"}) {
        CAPTURE(type);
        const DecoderConfig read = model(lengths + longrope(type, 8));
        CHECK(scaling_of(read).short_factor.size() == 8);
        CHECK(scaling_of(read).original_positions == 4096);
        CHECK(scaling_of(read).factor == 32);
    }
    const DecoderConfig part =
        model(lengths + R"(, "partial_rotary_factor": 0.75, "lm_head_bias": false, "mlp_bias": false,
              "full_attn_mod": 1, "interpolate_factor": 1)" +
              longrope("longrope", 6));
    CHECK(part.grouped().rope_fraction == 0.75);
    CHECK(scaling_of(part).long_factor.back() == 1.5);
    const auto refusal = [&](const std::string& keys) {
        return message_of(config_folder(folder, sizes + keys));
    };
    CHECK_THAT(refusal(longrope("longrope", 8)), Contains("original_max_position_embeddings is missing"));
    // transformers takes rope_scaling whole, without what only rope_parameters has
    const std::string both =
        R"(, "rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_type": "default",
              "partial_rotary_factor": 0.5})";
    CHECK_THAT(
        refusal(both),
        Contains("rope_parameters.partial_rotary_factor must be in rope_scaling too, or rope_scaling must "
                 "be removed: transformers takes rope_scaling instead of rope_parameters, and so 1 for "
                 "this, is 0.5"));
    CHECK(model(both + R"(, "partial_rotary_factor": 0.5)").grouped().rope_fraction == 0.5);
    CHECK_THAT(refusal(lengths + longrope("longrope", 7)),
               Contains("short_factor of the scaling of RoPE must have 8 numbers"));
    CHECK_THAT(refusal(R"(, "rope_scaling": {"type": "linear", "factor": 2})"),
               Contains("RoPE must be of type \"default\" or \"longrope\" (the architecture has no other)"));
    CHECK_THAT(refusal(R"(, "lm_head_bias": true)"), Contains("lm_head_bias must be false"));
    DecoderConfig scaled = mini;
    scaled.rope.scaling = LinearScaling{.factor = 2};
    CHECK_THROWS_WITH(hub_config_of(scaled), Contains("RoPE must be of type \"default\" or \"longrope\""));
}

TEST_CASE(
    "config.json of Ministral 3: the temperature is in the objects of RoPE, also within a model with "
    "images") {
    const TemporaryFolder folder;
    const std::string sizes = R"("model_type": "ministral3", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
        "vocab_size": 272, "max_position_embeddings": 262144, "rms_norm_eps": 1e-05, "sliding_window": null)";
    const auto rope = [](const std::string& keys) {
        return R"(, "rope_parameters": {"rope_theta": 1e6, )" + keys + "}";
    };
    const std::string yarn = R"("rope_type": "yarn", "type": "yarn", "factor": 16.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
        "max_position_embeddings": 262144)";
    const std::string published = sizes + rope(yarn + R"(, "llama_4_scaling_beta": 0.1)");
    const auto model = [&](const std::string& keys) {
        const HubModel read = read_hub_model(config_folder(folder, keys));
        CHECK(read.unknown_keys.empty());
        CHECK(written_and_read(read.config) == read.config);
        return read.config;
    };
    const DecoderConfig read = model(published);
    CHECK(read.grouped().temperature == Temperature{.scale = 0.1, .floor = 16384, .offset = 0});
    CHECK((read.grouped().temperature_everywhere && read.layer(0).grouped().temperature));
    CHECK(std::get<YarnScaling>(read.rope.scaling).factor == 16);
    CHECK(model(sizes).rope == read.rope);  // these are the defaults of transformers
    CHECK(model(sizes).grouped() == read.grouped());
    CHECK(model(R"("architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
                   "vision_config": {"hidden_size": 8}, "image_token_index": 10, "text_config": {)" +
                published + "}") == read);
    const DecoderConfig plain =
        model(sizes + rope(R"("rope_type": "default", "original_max_position_embeddings": 5,
                        "llama_4_scaling_beta": 0.5)"));
    CHECK(plain.grouped().temperature == Temperature{.scale = 0.5, .floor = 5, .offset = 0});
    CHECK((plain.rope.scaling == RopeScaling{}));
    const std::string floor = R"("original_max_position_embeddings": 512)";
    const DecoderConfig beside = model(sizes + ", " + floor + rope(R"("rope_type": "yarn", "factor": 4,
                        "llama_4_scaling_beta": 0.5)"));
    CHECK(std::get<YarnScaling>(beside.rope.scaling).original_positions == 512);
    CHECK(beside.grouped().temperature.floor == 512);
    const auto refusal = [&](const std::string& keys) { return message_of(config_folder(folder, keys)); };
    CHECK_THAT(refusal(sizes + rope(yarn)), Contains("rope_parameters.llama_4_scaling_beta is missing"));
    CHECK_THAT(refusal(sizes + rope(yarn + R"(, "llama_4_scaling_beta": -1)")),
               Contains("rope_parameters.llama_4_scaling_beta must be at least 0, is -1"));
    CHECK_THAT(refusal(published + R"(, "rope_scaling": {)" + yarn + R"(, "llama_4_scaling_beta": 0.2})"),
               Contains("rope_parameters is {") && Contains("but rope_scaling is {"));
    CHECK_THAT(refusal(sizes + ", " + floor + rope(R"("rope_type": "default", "llama_4_scaling_beta": 0.5,
                   "original_max_position_embeddings": 5)")),
               Contains("original_max_position_embeddings is 512, but "
                        "rope_parameters.original_max_position_embeddings is 5"));
    CHECK_THAT(refusal(sizes + R"(, "original_max_position_embeddings": 0)" +
                       rope(R"("rope_type": "default", "llama_4_scaling_beta": 0.5)")),
               Contains("original_max_position_embeddings must be at least 1, is 0"));
    // no other family has it
    const std::string llama =
        R"("architectures": ["LlamaForCausalLM"], )" + published.substr(published.find(',') + 1);
    CHECK_THAT(refusal(llama), Contains("is not a key of RoPE of type \"yarn\""));
}

TEST_CASE("config.json of CWM and Ministral 3: without an object of RoPE there is no other theta") {
    const TemporaryFolder folder;
    const std::string other = R"(, "rope_theta": 5e5)", usual = R"(, "rope_theta": 1000000.0)";
    for (const char* name : {"CwmForCausalLM", "Ministral3ForCausalLM"}) {
        CAPTURE(name);
        const auto message = [&](const std::string& keys) {
            return message_of(config_folder(folder, four_layers(name) + keys));
        };
        for (const char* none : {"", R"(, "rope_parameters": null)", R"(, "rope_scaling": {})",
                                 R"(, "rope_parameters": null, "rope_scaling": null)"}) {
            CAPTURE(none);
            CHECK_THAT(
                message(other + none),
                Contains("rope_theta must be 1000000, because transformers takes another one for this "
                         "architecture only if it is written in rope_parameters, with rope_type and its "
                         "other keys, is 500000"));
            CHECK_THAT(message(usual + none), Contains("read without complaint"));
        }
    }
    const DecoderConfig plain = model_from_hub(
        config_folder(folder, four_layers("CwmForCausalLM") + other + R"(, "rope_parameters": {})"));
    CHECK((plain.rope == RopeConfig{.theta = 5e5, .layout = RopeLayout::half_split}));
    const DecoderConfig warm = model_from_hub(
        config_folder(folder, four_layers("Ministral3ForCausalLM") + other +
                                  R"(, "rope_scaling": {"type": "default", "llama_4_scaling_beta": 1})"));
    CHECK(warm.rope.theta == 5e5);
}

TEST_CASE("config.json of Gemma 3: one window in six is left out, and each kind of layer has its RoPE") {
    const TemporaryFolder folder;
    const auto model = [&](const std::string& keys) {
        const HubModel read = read_hub_model(config_folder(folder, keys));
        CHECK(read.unknown_keys.empty());
        CHECK(written_and_read(read.config) == read.config);
        return read.config;
    };
    // the folder of 4B says little more than what differs from the defaults of transformers
    const DecoderConfig whole = model(R"("architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 255999, "eoi_token_index": 256000, "image_token_index": 262144,
        "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3", "vision_config":
        {"hidden_size": 1152}, "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0,
        "rope_type": "linear"}, "sliding_window": 1024})");
    DecoderConfig flavor = find_flavor(find_family("gemma3"), "4B");
    flavor.flavor = "hf";
    CHECK(whole == flavor);
    // that of 1B says everything, in the form of its time
    DecoderConfig small = find_flavor(find_family("gemma3"), "1B");
    small.flavor = "hf";
    CHECK(model(R"("architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
        "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
        "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
        "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
        "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
        "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
        "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 262144)") == small);
    const std::string sizes = R"("model_type": "gemma3_text", "num_hidden_layers": 7, "hidden_size": 64)";
    const DecoderConfig usual = model(sizes);
    CHECK(usual.windowed == LayerChoice{.word = "111110"});
    CHECK(usual.layer(4).grouped().rope_table == 1);
    CHECK(usual.layer(5).grouped().rope_table == 0);
    CHECK(usual.embedding_scale == 8);
    CHECK(model(sizes + R"(, "sliding_window_pattern": 3)").windowed == LayerChoice{.word = "110"});
    // transformers does not read the key with an underscore, which it writes
    const std::string underscored = R"(, "_sliding_window_pattern": )";
    CHECK(model(sizes + underscored + "6").windowed == usual.windowed);
    CHECK(model(sizes + underscored + R"(2, "sliding_window_pattern": 3)").windowed ==
          LayerChoice{.word = "110"});
    CHECK(model(R"("model_type": "gemma3_text", "num_hidden_layers": 4, "hidden_size": 64,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                   "full_attention"])" +
                underscored + "3")
              .windowed == LayerChoice{.period = 2});
    CHECK_THAT(message_of(config_folder(folder, sizes + underscored + "3")),
               Contains("_sliding_window_pattern must be 6, which transformers takes without "
                        "sliding_window_pattern or layer_types, is 3"));
    const DecoderConfig full = model(sizes + R"(, "sliding_window_pattern": 1)");
    CHECK(full.head_sizes().window == 0);
    CHECK_FALSE(full.window_rope);
    const DecoderConfig other = model(sizes + R"(, "query_pre_attn_scalar": 168, "attention_bias": true)");
    CHECK(other.grouped().scale == 1 / std::sqrt(168.0));
    CHECK(other.grouped().bias == AttentionBias::all);
    const auto refusal = [&](const std::string& keys) {
        return message_of(config_folder(folder, sizes + keys));
    };
    CHECK_THAT(refusal(R"(, "final_logit_softcapping": 30.0)"),
               Contains("final_logit_softcapping must be null (caps are not implemented yet), is 30"));
    CHECK_THAT(refusal(R"(, "attn_logit_softcapping": 50.0)"),
               Contains("attn_logit_softcapping must be null"));
    CHECK_THAT(refusal(R"(, "hidden_activation": "gelu")"),
               Contains("hidden_activation must be \"gelu_pytorch_tanh\""));
    CHECK_THAT(refusal(R"(, "use_bidirectional_attention": true)"),
               Contains("use_bidirectional_attention must be false"));
    CHECK_THAT(refusal(R"(, "query_pre_attn_scalar": 0)"),
               Contains("query_pre_attn_scalar must be at least 1"));
    DecoderConfig unscaled = full;
    unscaled.embedding_scale = 1;
    CHECK_THROWS_WITH(hub_config_of(unscaled),
                      Contains("a model with embedding_scale = 1.0 cannot be written"));
}
