// SPDX-License-Identifier: Apache-2.0
// What a run of a model that is not a decoder may ask for, and what is refused by name.
#include "coeus/base/error.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/train/saving.hpp"
#include "coeus/train/workload.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/two_flow_model.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

const ModelConfig two_flows(std::make_shared<TwoFlowDescription>(3, 6, 11)), decoder(tiny_config(2));

}  // namespace

TEST_CASE("other models: a checkpoint's description says whether its weights fit") {
    const TwoFlowDescription same(3, 6, 11), wider(3, 8, 11);
    CHECK(two_flows->other_shape(same.description(), "x").empty());
    CHECK_FALSE(two_flows->other_shape(wider.description(), "x").empty());
    CHECK(decoder->other_shape(decoder->description(), "x").empty());
    DecoderConfig other = tiny_config(2);
    other.vocab += 1;
    CHECK(decoder->other_shape(ModelConfig(other)->description(), "x")
              .starts_with("tok_embeddings.weight is ["));
    CHECK_THROWS_WITH(decoder->other_shape(two_flows->description(), "step-1.h5"),
                      Catch::Contains("step-1.h5 (model)"));
}

TEST_CASE("other models: weights of another run, folders of Hugging Face and text are for decoders") {
    Config config;
    config.checkpoint.initial_load_path = "outputs/other/step-1.h5";
    CHECK_THROWS_WITH(
        require_weights_of(config, two_flows),
        "checkpoint.initial_load_path = \"outputs/other/step-1.h5\": two flows is not a decoder, and "
        "starts from random weights or from a whole checkpoint of its own "
        "(checkpoint.initial_load_model_only = false)");
    CHECK_NOTHROW(require_form_of_export(config.checkpoint, two_flows));
    config.checkpoint.last_save_in_hf = true;
    CHECK_NOTHROW(require_form_of_export(config.checkpoint, decoder));
    CHECK_THROWS_WITH(
        require_form_of_export(config.checkpoint, two_flows),
        "checkpoint.last_save_in_hf = true: two flows has no form in Hugging Face folders; remove it");
    CHECK_THROWS_WITH(check_samples(config, two_flows, ""),
                      "two flows is not a language model, which training on text needs");
}
