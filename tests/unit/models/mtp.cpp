// SPDX-License-Identifier: Apache-2.0
// Multi-token prediction in a model's numbers and in Hugging Face folders.
#include "coeus/models/decoder.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE(
    "DeepSeek V3: multi-token prediction adds the parameters and FLOPs of a layer and of the projections") {
    DecoderConfig m = find_flavor(find_family("deepseek_v3"), "671B");
    const int64_t without = m.parameters();
    const double flops = m.flops_per_token(4096);
    m.mtp.layers = 1;
    DecoderConfig shorter = find_flavor(find_family("deepseek_v3"), "671B");
    shorter.layers = 60;
    CHECK(m.parameters() - without == without - shorter.parameters() + 2 * 7168 * 7168 + 3 * 7168);
    CHECK(m.layers_with_experts().size() == 59);
    CHECK(m.moe_rows() == 59);
    CHECK(m.layer(61) == m.layer(60));
    // the layer with its scores, and the two projections
    const double of_layer = flops - shorter.flops_per_token(4096);
    const double projections = 6.0 * (2.0 * 7168 * 7168 + 3.0 * 7168 + 129280.0 * 7168);
    CHECK(close(m.flops_per_token(4096) / flops, 1 + (of_layer + projections) / flops, 1e-12));

    for (const char* family : {"deepseek_v3", "qwen3", "gpt_oss", "llama3"}) {
        CAPTURE(family);
        DecoderConfig small = find_flavor(find_family(family), "debugmodel");
        small.mtp.layers = 2;
        int64_t exact = 0;
        const Decoder decoder(small, {}, 8);
        for (const Storage& storage : decoder.parameters().storages())
            if (storage.is_exact()) exact += storage.shape().count();
        CHECK(decoder.parameters().count() == small.parameters() + exact);
    }
}

TEST_CASE("GLM: layers of multi-token prediction are after the last layer in a folder, as in DeepSeek V3") {
    for (const char* name : {"glm4_moe", "glm4_moe_lite"}) {
        CAPTURE(name);
        const ModelFamily& family = find_family(name);
        DecoderConfig m = find_flavor(family, "debugmodel");
        m.mtp.layers = 1;
        const auto place = [&](const std::string& parameter) {
            return family.hub_places(parameter, {4, 4}, m).at(0).name;
        };
        CHECK(place("mtp_layers.0.eh_proj.weight") == "model.layers.4.eh_proj.weight");
        CHECK(place("mtp_layers.0.attention.wo.weight") == "model.layers.4.self_attn.o_proj.weight");
        CHECK(place("mtp_layers.0.moe.expert_bias") == "model.layers.4.mlp.gate.e_score_correction_bias");
        CHECK(family.hub_copy_of("model.layers.4.shared_head.head.weight", m)->of == "lm_head.weight");
        CHECK(model_of_keys(family, JsonView(hub_config_of(m), "config.json")).mtp.layers == 1);
        m.mtp.layers = 0;
        CHECK(family.hub_ignores("model.layers.4.eh_proj.weight", m));
    }
}

TEST_CASE("DeepSeek V3: layers of multi-token prediction are after the last layer in a folder") {
    DecoderConfig m = find_flavor(find_family("deepseek_v3"), "671B");
    m.mtp.layers = 1;
    const ModelFamily& family = find_family("deepseek_v3");
    const auto place = [&](const std::string& name) { return family.hub_places(name, {4, 4}, m).at(0).name; };
    CHECK(place("mtp_layers.0.enorm.weight") == "model.layers.61.enorm.weight");
    CHECK(place("mtp_layers.0.hnorm.weight") == "model.layers.61.hnorm.weight");
    CHECK(place("mtp_layers.0.eh_proj.weight") == "model.layers.61.eh_proj.weight");
    CHECK(place("mtp_layers.0.mtp_norm.weight") == "model.layers.61.shared_head.norm.weight");
    CHECK(place("mtp_layers.0.attention.wo.weight") == "model.layers.61.self_attn.o_proj.weight");
    CHECK(place("mtp_layers.0.moe.expert_bias") == "model.layers.61.mlp.gate.e_score_correction_bias");
    // copies of the table and of the output projection
    CHECK(family.hub_ignores("model.layers.61.embed_tokens.weight", m));
    CHECK(family.hub_ignores("model.layers.61.shared_head.head.weight", m));
    CHECK(family.hub_copy_of("model.layers.61.embed_tokens.weight", m)->of == "model.embed_tokens.weight");
    CHECK(family.hub_copy_of("model.layers.61.shared_head.head.weight", m)->of == "lm_head.weight");
    CHECK_FALSE(family.hub_copy_of("model.layers.62.embed_tokens.weight", m));  // a layer that is left out
    CHECK_FALSE(family.hub_copy_of("lm_head.weight", m));
    CHECK_FALSE(family.hub_ignores("model.layers.61.shared_head.norm.weight", m));
    CHECK(family.hub_ignores("model.layers.62.enorm.weight", m));
    m.mtp.layers = 0;
    CHECK(family.hub_ignores("model.layers.61.shared_head.norm.weight", m));
    m.mtp.layers = 1;
    CHECK(model_of_keys(family, JsonView(hub_config_of(m), "config.json")).mtp.layers == 1);
    DecoderConfig llama = find_flavor(find_family("llama3"), "8B");
    llama.mtp.layers = 1;
    CHECK_THROWS_WITH(hub_config_of(llama), Contains("a model with num_mtp_layers = 1 cannot be written"));
}

TEST_CASE("a table is used by the embedding, by each depth, and by each of their heads if it is tied") {
    struct Uses {
        bool tied, embedding, head;
        int64_t depths;
        int of_table, of_output;
    };
    for (const Uses& u : {Uses{false, true, true, 0, 1, 1},
                          {false, true, true, 2, 3, 3},
                          {false, true, false, 2, 1, 0},
                          {false, false, true, 2, 2, 3},
                          {true, true, true, 0, 2, 2},
                          {true, true, true, 2, 6, 6},
                          {true, true, false, 2, 1, 1},
                          {true, false, true, 0, 1, 1},
                          {true, false, true, 2, 5, 5}}) {
        CAPTURE(u.tied, u.embedding, u.head, u.depths);
        DecoderConfig config = tiny_config(2, u.tied);
        config.mtp.layers = u.depths;
        const Decoder decoder(config, {}, 8, {}, {DecoderPart{u.embedding, 0, 2, u.head}}, {});
        const Parameters& parameters = decoder.parameters();
        const auto uses_of = [&](const std::string& name) {
            for (const Unit& unit : parameters.units())
                for (size_t i = unit.first; i < unit.first + unit.count; ++i)
                    for (const Param& param : parameters.storages()[i].params())
                        if (param.name == name) return unit.uses;
            return 0;
        };
        CHECK(uses_of("tok_embeddings.weight") == u.of_table);
        CHECK(uses_of(u.tied ? "tok_embeddings.weight" : "output.weight") == u.of_output);
        CHECK(uses_of("layers.0.attention.wq.weight") == 1);
    }
}
