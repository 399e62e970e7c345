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
    m.attention.value_dim = 4;
    m.rope.layout = RopeLayout::half_split;
    const std::string text = describe_model(m);
    CHECK_THAT(text, !Contains("rope_scaling") && Contains(R"("v_head_dim":4)") &&
                         Contains(R"("rope_layout":"half_split")"));
    m.ffn_rule.reset();
    CHECK(model_from_description(text, "x") == m);
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
    const std::vector<std::string> others = {"ffn_dim_multiplier", "multiple_of", "rope_scaling_factor",
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
    CHECK(option_value(config, "model.norm_type") == std::optional<FieldValue>(std::string("rmsnorm")));
    CHECK_FALSE(option_value(config, "model.n_layers").has_value());    // not set
    CHECK_FALSE(option_value(config, "model.converters").has_value());  // a list
    CHECK_FALSE(option_value(config, "model.no_such_option").has_value());
}
