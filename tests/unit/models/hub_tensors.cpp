// SPDX-License-Identifier: Apache-2.0
// Tensors of Hugging Face folders: what families leave out, and what keeps its type.
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
