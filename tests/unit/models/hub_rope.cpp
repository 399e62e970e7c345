// SPDX-License-Identifier: Apache-2.0
// The kinds of RoPE scaling in config.json: what is refused and how, and what is written. golden/rope.cpp
// compares their numbers.
#include "coeus/models/hub_model.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("config.json: scalings of RoPE that a model cannot have are refused by key") {
    const TemporaryFolder folder;
    const auto kind = [&](const std::string& keys) {
        return message_of(config_folder(
            folder,
            minimal_llama + R"(, "max_position_embeddings": 64, "rope_scaling": {"type": )" + keys + "}"));
    };
    CHECK_THAT(kind(R"("ntk", "factor": 4)"),
               Contains("rope_scaling of type \"ntk\" is unknown to this version, which knows \"default\", "
                        "\"llama3\", \"yarn\", \"linear\", \"dynamic\", \"longrope\""));
    CHECK_THAT(kind(R"("none")"), Contains("rope_scaling of type \"none\" is unknown"));
    CHECK_THAT(kind(R"("linear", "factor": 4)"), Contains("read without complaint"));
    CHECK_THAT(kind(R"("linear")"), Contains("rope_scaling.factor is missing"));
    CHECK_THAT(kind(R"("linear", "factor": 0.5)"),
               Contains("rope_scaling.factor must be at least 1, is 0.5"));
    CHECK_THAT(kind(R"("linear", "factor": 4, "beta_fast": 32)"),
               Contains("rope_scaling.beta_fast is not a key of RoPE of type \"linear\""));
    CHECK_THAT(kind(R"("dynamic", "factor": 4)"), Contains("read without complaint"));
    CHECK_THAT(kind(R"("dynamic", "factor": 4, "original_max_position_embeddings": 32)"),
               Contains("original_max_position_embeddings must be max_position_embeddings, 64, which readers "
                        "take for this type, is 32"));
    const auto longrope = [&](const std::string& short_factor, const std::string& keys) {
        return kind(R"("longrope", "long_factor": [2, 2, 2, 2, 4, 4, 4, 4], "short_factor": )" +
                    short_factor + keys);
    };
    CHECK_THAT(longrope("[1, 1, 1, 1, 1, 1, 1, 1.5]", ""), Contains("read without complaint"));
    CHECK_THAT(longrope("[1, 0]", ""), Contains("rope_scaling.short_factor[1] must be greater than 0, is 0"));
    CHECK_THAT(longrope("[1]", ""),
               Contains("short_factor of the scaling of RoPE must have 8 numbers, one for each "
                        "pair of the 16 rotated columns of a head; it has 1"));
    CHECK_THAT(longrope("2", ""), Contains("short_factor must be an array"));
    CHECK_THAT(longrope("[1, 1, 1, 1, 1, 1, 1, 1]", R"(, "attention_factor": -1)"),
               Contains("attention_factor must be at least 0, is -1"));
    CHECK_THAT(longrope("[1, 1, 1, 1, 1, 1, 1, 1]", R"(, "original_max_position_embeddings": 1)"),
               Contains("needs an original length of at least 2, not 1"));
    CHECK_THAT(longrope("[1, 1, 1, 1, 1, 1, 1, 1]", R"(, "factor": 0.5)"),
               Contains("factor must be at least 1, is 0.5"));
}

TEST_CASE("config.json: dynamic scaling writes the length from which readers scale") {
    const TemporaryFolder folder;
    DecoderConfig model =
        model_from_hub(config_folder(folder, minimal_llama + R"(, "max_position_embeddings": 64,
                                   "rope_scaling": {"rope_type": "dynamic", "factor": 4})"));
    CHECK((model.rope.scaling == RopeScaling{DynamicScaling{.factor = 4, .original_positions = 64}}));
    model.max_seq_len = 256;  // for longer rows
    const Json written = hub_config_of(model);
    CHECK(JsonView(written, "written").integer("max_position_embeddings") == 64);
    const DecoderConfig back =
        model_from_hub(config_folder(folder, written.text().substr(1, written.text().size() - 2)));
    CHECK((back.rope == model.rope));
}
