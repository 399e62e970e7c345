// SPDX-License-Identifier: Apache-2.0
// Tensors of Hugging Face folders: what families leave out, what keeps its type, and several parameters in
// one.
#include "coeus/models/decoder.hpp"
#include "coeus/models/registry.hpp"
#include "support/catch.hpp"

using namespace coeus;

TEST_CASE("every family compares what it leaves out as a copy") {
    for (const ModelFamily& family : model_families()) {
        if (!family.hub_ignores) continue;
        CAPTURE(family.name);
        for (const bool tied : {false, true}) {
            DecoderConfig model = family.flavors.front();
            model.tied = tied;
            const std::optional<HubCopy> copy = family.hub_copy_of("lm_head.weight", model);
            CHECK(family.hub_ignores("lm_head.weight", model) == tied);
            REQUIRE(copy.has_value() == tied);
            if (copy) CHECK(copy->of == "model.embed_tokens.weight");
            CHECK_FALSE(family.hub_copy_of("model.layers.0.self_attn.rotary_emb.inv_freq", model));
        }
    }
}

TEST_CASE("only the balancing biases of DeepSeek V3 keep float32 in a folder of fewer bits") {
    for (const ModelFamily& family : model_families()) {
        if (!family.hub_places) continue;
        for (const DecoderConfig& flavor : family.flavors) {
            if (flavor.dim > 512) continue;
            CAPTURE(family.name, flavor.flavor);
            DecoderConfig model = flavor;
            if (family.name == "deepseek_v3") model.moe.keeps_bias = true;
            const Decoder decoder(model, {}, 1);
            for (const Storage* storage : decoder.parameters().model())
                for (const Param& param : storage->params())
                    for (const HubPlace& place : family.hub_places(param.name, param.shape, model)) {
                        CAPTURE(place.name);
                        CHECK(place.keeps_f32 == param.is_exact);
                        CHECK(place.keeps_f32 == place.name.ends_with(".e_score_correction_bias"));
                    }
        }
    }
}

TEST_CASE("parameters that are one tensor of a folder lie in it one below the other") {
    const DecoderConfig model = {
        .dim = 8,
        .attention = GroupedAttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 6, .value_dim = 4},
        .feed_forward = {.hidden = 10}};
    const std::vector<HubStack> stacks = {qkv_hub_stack(model), gate_up_hub_stack(model, "mlp.both.weight")};
    struct Expected {
        const char *parameter, *tensor;
        int64_t rows, all_rows, first;
    };
    for (const Expected& e : {Expected{"attention.wq.weight", "self_attn.qkv_proj.weight", 24, 44, 0},
                              Expected{"attention.wk.weight", "self_attn.qkv_proj.weight", 12, 44, 24},
                              Expected{"attention.wv.weight", "self_attn.qkv_proj.weight", 8, 44, 36},
                              Expected{"feed_forward.w1.weight", "mlp.both.weight", 10, 20, 0},
                              Expected{"feed_forward.w3.weight", "mlp.both.weight", 10, 20, 10}}) {
        CAPTURE(e.parameter);
        const auto places = places_in(stacks, std::string("layers.7.") + e.parameter, {e.rows, 8});
        REQUIRE(places.size() == 1);
        CHECK(places[0].name == std::string("model.layers.7.") + e.tensor);
        CHECK(places[0].shape == Shape{e.all_rows, 8});
        CHECK((places[0].first_row == 0 && places[0].rows == e.rows));
        for (const int64_t row : {int64_t(0), e.rows - 1})
            for (const int64_t col : {0, 7}) CHECK(places[0].index(row, col) == (e.first + row) * 8 + col);
    }
    CHECK(places_in(stacks, "layers.7.attention.wo.weight", {8, 16}).empty());
    CHECK(places_in(stacks, "norm.weight", {8}).empty());
    // the same for each matrix of experts
    const auto places = stacked_hub_places("experts", {3, 10, 8}, 20, 10);
    REQUIRE(places.size() == 3);
    for (int64_t expert = 0; expert < 3; ++expert) {
        const HubPlace& place = places[size_t(expert)];
        CHECK(place.shape == Shape{3, 20, 8});
        CHECK((place.first_row == 10 * expert && place.rows == 10));
        CHECK(place.index(10 * expert + 9, 5) == (20 * expert + 10 + 9) * 8 + 5);
    }
}
