// SPDX-License-Identifier: Apache-2.0
// The list of a model's fields: descriptions, comparison, and options that override fields.
#include "coeus/models/config_fields.hpp"

#include "coeus/base/error.hpp"
#include "coeus/config/config.hpp"
#include "coeus/models/registry.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"
#include "unit/models/change.hpp"

#include <map>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("a checkpoint's description gives the same model") {
    for (const ModelFamily& family : model_families())
        for (DecoderConfig flavor : family.flavors) {
            flavor.ffn_rule.reset();  // a description has the width as a number
            CHECK(model_from_description(describe_model(flavor), "x") == flavor);
        }
    DecoderConfig odd = find_flavor(find_family("llama2"), "debugmodel");
    odd.ffn_rule.reset();
    odd.rope.scaling =
        Llama3Scaling{.factor = 32, .low_frequency = 1.5, .high_frequency = 3, .original_positions = 512};
    odd.norm_type = NormType::np_layer_norm;
    odd.norm_eps = 1.0 / 3;
    odd.tied = true;
    CHECK(model_from_description(describe_model(odd), "x") == odd);
    odd.rope.scaling = YarnScaling{.factor = 40,
                                   .original_positions = 64,
                                   .beta_fast = 4,
                                   .beta_slow = 2,
                                   .truncate = false,
                                   .attention_factor = 1.5,
                                   .mscale = 0.7,
                                   .mscale_all_dim = 0.5};
    CHECK(model_from_description(describe_model(odd), "x") == odd);
    odd.rope.scaling = LinearScaling{.factor = 2.5};
    CHECK(model_from_description(describe_model(odd), "x") == odd);
    odd.rope.scaling = DynamicScaling{.factor = 3, .original_positions = 96};
    CHECK(model_from_description(describe_model(odd), "x") == odd);
    odd.rope.scaling = LongRopeScaling{.short_factor = std::vector<double>(8, 1.25),
                                       .long_factor = std::vector<double>(8, 7.5),
                                       .original_positions = 96,
                                       .factor = 4,
                                       .attention_factor = 1.5};
    CHECK(model_from_description(describe_model(odd), "x") == odd);

    CHECK_THROWS_WITH(model_from_description("{}", "step-1.h5"), Contains("step-1.h5 (model): family"));
    CHECK_THROWS_WITH(model_from_description("no JSON", "step-1.h5"), Contains("step-1.h5 (model)"));
    std::string wrong = describe_model(odd);
    wrong.replace(wrong.find("\"dim\":256"), 9, "\"dim\":0  ");
    CHECK_THROWS_AS(model_from_description(wrong, "step-1.h5"), ConfigError);
}

TEST_CASE("a description has the bytes that earlier versions wrote, and newer fields only if they are used") {
    DecoderConfig m = find_flavor(find_family("llama3"), "debugmodel");
    const std::string plain =
        R"({"family":"llama3","flavor":"debugmodel","dim":256,"n_layers":6,"n_heads":16,"n_kv_heads":16,)"
        R"("head_dim":16,"ffn_hidden":768,"vocab_size":2048,"rope_theta":500000.0,"rope_scaling":{"factor":8.0,)"
        R"("low_frequency":1.0,"high_frequency":4.0,"original_positions":8192.0},"norm_eps":1e-05,)"
        R"("norm_type":"rmsnorm","tied_embeddings":false,"max_seq_len":131072})";
    CHECK(describe_model(m) == plain);
    m.rope.scaling = {};
    m.grouped().value_dim = 4;
    m.rope.layout = RopeLayout::half_split;
    const std::string text = describe_model(m);
    CHECK_THAT(text, !Contains("rope_scaling") && Contains(R"("v_head_dim":4)") &&
                         Contains(R"("rope_layout":"half_split")"));
    m.ffn_rule.reset();
    CHECK(model_from_description(text, "x") == m);
}

TEST_CASE("an irregular choice of layers is described by its word, and a list does not fit other layers") {
    DecoderConfig m = tiny_config(6);
    set_attention(m, 5);
    set_experts(m, 1);
    m.grouped().window = 4;
    CHECK_THAT(describe_model(m), !Contains("layers\":\""));
    for (const char* word : {"110", "110100"}) {
        CAPTURE(word);
        DecoderConfig irregular = m;
        set_layer_choices(irregular, word);
        const std::string text = describe_model(irregular);
        for (const char* name : {"window_layers", "nope_layers", "moe.layers"})
            CHECK_THAT(text, Contains(fmt::format(R"("{}":"{}")", name, word)));
        CHECK(model_from_description(text, "x") == irregular);
        CHECK(differences(m, irregular).size() == 5);  // the words, and the period and first layer of one
        const auto with_layers = [&](int64_t layers) {
            DecoderConfig other = irregular;
            override_fields(other, [&](const std::string& name) {
                return name == "n_layers" ? std::optional<FieldValue>(layers) : std::nullopt;
            });
            return other;
        };
        CHECK(with_layers(6) == irregular);
        if (std::string(word) == "110")
            CHECK_FALSE(with_layers(9).layer(8).head_sizes().window > 0);
        else
            CHECK_THROWS_WITH(with_layers(9),
                              "model.n_layers = 9: llama3 tiny has a list of 6 layers (window_layers = "
                              "\"110100\") that says which of them are alike, and no rule for others; remove "
                              "model.n_layers, or change the list where the model comes from, such as in "
                              "config.json");
    }
    // the same layers as a rule and as a list
    DecoderConfig rule = m, list = m;
    rule.windowed = rule.without_rope = rule.moe_layers = LayerChoice{.period = 6};
    list = rule;
    set_layer_choices(list, "100000");
    CHECK(differences(rule, list).empty());
    CHECK(differences(list, rule).empty());
    list.layers = 7;
    CHECK(differences(rule, list).size() == 1);
    list.layers = 12;
    set_layer_choices(list, "100000000000");
    CHECK(differences(rule, list).size() > 1);
    m.windowed.word = "1x";
    CHECK_THROWS_WITH(m.validate(),
                      "model.window_layers = \"1x\": must have a 1 for each layer that is "
                      "meant, and a 0 for others");
}

TEST_CASE("fields of a kind of attention that a model does not have are refused") {
    const auto refusal = [](const char* family, const std::string& field, int64_t value) -> std::string {
        DecoderConfig m = find_flavor(find_family(family), "debugmodel");
        try {
            override_fields(m, [&](const std::string& name) {
                return name == field ? std::optional<FieldValue>(value) : std::nullopt;
            });
            m.validate();
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "taken";
    };
    for (const char* field : {"kv_lora_rank", "q_lora_rank", "qk_rope_head_dim"}) {
        CHECK(refusal("llama3", field, 8) ==
              fmt::format("model.{} = 8: llama3 debugmodel has attention without latents, and no such field; "
                          "remove it",
                          field));
        CHECK(refusal("llama3", field, 0) == "taken");  // as it is
        CHECK(refusal("deepseek_v3", field, 8) == "taken");
    }
    CHECK(refusal("deepseek_v3", "attention_chunk", 8) ==
          "model.attention_chunk = 8: deepseek_v3 debugmodel has latent attention, and no such field; remove "
          "it");
    CHECK(refusal("deepseek_v3", "n_kv_heads", 8) ==
          "model.n_kv_heads = 8: must be model.n_heads = 16 with latent attention");
    const std::string latent = describe_model(find_flavor(find_family("deepseek_v3"), "debugmodel"));
    const auto with = [](std::string description, const std::string& more) {
        return description.insert(1, more);
    };
    for (const char* field : {R"("attention_sinks":true,)", R"("nope_period":2,)", R"("qk_norm":"none",)",
                              R"("partial_rotary_factor":0.5,)"})
        CHECK_THROWS_WITH(model_from_description(with(latent, field), "x.h5"),
                          Contains("must be absent: deepseek_v3 debugmodel has latent attention"));
    CHECK_THROWS_WITH(
        model_from_description(with(describe_model(tiny_config()), R"("q_lora_rank":5,)"), "x.h5"),
        Contains("q_lora_rank must be absent: llama3 tiny has attention without latents"));
}

TEST_CASE("models with different kinds of attention differ in what each of them has") {
    DecoderConfig grouped = tiny_config(), latent = grouped;
    set_attention(latent, 3);
    latent.rope = grouped.rope;
    std::string text;
    for (const FieldDifference& found : differences(grouped, latent))
        text += fmt::format("{} {} {}, ", found.field.name, found.ours, found.theirs);
    CHECK(
        text ==
        "n_kv_heads 2 4, head_dim 6 10, kv_lora_rank none 7, q_lora_rank none 5, qk_rope_head_dim none 4, ");
    CHECK(differences(latent, grouped).size() == 5);
}

TEST_CASE("experts with biases: old descriptions do not say that the rows of gate and up take turns") {
    DecoderConfig m = tiny_config();
    set_experts(m, 3);
    CHECK((m.moe.biases && m.moe.gate.interleaved));
    const std::string text = describe_model(m);
    CHECK_THAT(text, Contains(R"("moe.biases":true)") && !Contains("moe.gate_interleaved"));
    m.ffn_rule.reset();
    CHECK(model_from_description(text, "x") == m);
    m.moe.biases = false;
    CHECK_THAT(describe_model(m), Contains(R"("moe.gate_interleaved":true)") && !Contains("moe.biases"));
    CHECK(model_from_description(describe_model(m), "x") == m);
}

TEST_CASE("a field missing in a description has its default, and a description without shapes is damaged") {
    const std::string shapes =
        R"("family":"llama3","flavor":"x","dim":8,"n_layers":1,"n_heads":2,"n_kv_heads":2,"head_dim":4,)"
        R"("ffn_hidden":8,"vocab_size":9)";
    const DecoderConfig m = model_from_description("{" + shapes + "}", "old.h5"), defaults;
    CHECK(m.norm_eps == defaults.norm_eps);
    CHECK(m.rope == defaults.rope);
    CHECK(m.max_seq_len == defaults.max_seq_len);
    CHECK_THROWS_WITH(model_from_description(R"({"family":"llama3","flavor":"x","dim":8})", "old.h5"),
                      "old.h5 (model): n_layers is missing");
    CHECK_THROWS_WITH(model_from_description("{" + shapes + R"(,"norm_type":"newnorm"})", "new.h5"),
                      Contains("new.h5 (model): norm_type is unknown to this version"));
}

TEST_CASE("two models differ in exactly the fields that were changed") {
    const DecoderConfig plain = tiny_config();
    CHECK(differences(plain, plain).empty());
    int number = 0;
    for_each_field(plain, [&](const ConfigField& field, const auto&) {
        DecoderConfig other = plain;
        int at = 0;
        for_each_field(other, [&](const ConfigField&, auto& value) {
            if (at++ == number) change(value);
        });
        ++number;
        const std::vector<FieldDifference> found = differences(plain, other);
        CAPTURE(field.name);
        CHECK(found.size() == 1);
        CHECK(found.at(0).field.name == std::string(field.name));
        CHECK(found.at(0).ours != found.at(0).theirs);
        CHECK_FALSE(plain == other);
        other.ffn_rule = plain.ffn_rule;
        // the change is preserved in its description
        if (field.kind != FieldKind::shape)
            CHECK(differences(model_from_description(describe_model(other), "x"), other).empty());
    });
    DecoderConfig scaled = plain;
    scaled.rope.scaling = Llama3Scaling{};
    CHECK(differences(plain, scaled).at(0).ours == "none");
    DecoderConfig of_other_kind = plain;
    of_other_kind.rope.scaling = YarnScaling{};
    CHECK(differences(scaled, of_other_kind).size() == 1);
    std::string unknown = describe_model(of_other_kind);
    unknown.replace(unknown.find("\"yarn\""), 6, "\"long\"");
    CHECK_THROWS_WITH(model_from_description(unknown, "new.h5"),
                      Contains("rope_scaling.type is unknown to this version"));
}

TEST_CASE("every option that overrides a field has the name of the field") {
    // options of the model that are not fields
    const std::vector<std::string> others = {"ffn_dim_multiplier",
                                             "multiple_of",
                                             "rope_scaling_type",
                                             "rope_scaling_factor",
                                             "rope_scaling_original_positions",
                                             "moe.num_shared_experts"};
    std::map<std::string, int> asked;
    DecoderConfig m = find_flavor(find_family("llama3"), "debugmodel");
    override_fields(m, [&](const std::string& name) {
        ++asked[name];
        return std::optional<FieldValue>();
    });
    for (const std::string& name : others) CHECK(asked.contains(name));
    Config config;
    config.model.dim = 512;
    CHECK(option_value(config, "model.dim") == std::optional<FieldValue>(int64_t(512)));
    CHECK_FALSE(option_value(config, "model.norm_type").has_value());  // that of the flavour
    config.model.norm_type = "rmsnorm";
    CHECK(option_value(config, "model.norm_type") == std::optional<FieldValue>(std::string("rmsnorm")));
    CHECK_FALSE(option_value(config, "model.n_layers").has_value());    // not set
    CHECK_FALSE(option_value(config, "model.converters").has_value());  // a list
    CHECK_FALSE(option_value(config, "model.no_such_option").has_value());
}
