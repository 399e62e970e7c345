// SPDX-License-Identifier: Apache-2.0
// The kinds of RoPE scaling in config.json: what is refused and how, and what is written. golden/rope.cpp
// compares their numbers.
#include "coeus/models/hub_model.hpp"
#include "coeus/models/parts/rope.hpp"
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

namespace {

constexpr const char* local_theta = "rope_local_base_freq";

struct Ropes {
    RopeConfig full = {.theta = 1e6};
    WindowRope windowed = {.theta = 1e4};

    bool operator==(const Ropes&) const = default;
};

Ropes ropes_of(const std::string& keys, const char* window_theta = local_theta) {
    const JsonDocument config = JsonDocument::parse("{" + keys + "}", "config.json");
    Ropes ropes;
    read_hub_ropes(config.root(), ropes.full, ropes.windowed, 512, window_theta);
    return ropes;
}

std::string refusal_of_ropes(const std::string& keys, const char* window_theta = local_theta) {
    try {
        ropes_of(keys, window_theta);
    } catch (const ConfigError& e) {
        return e.what();
    }
    return "read without complaint";
}

}  // namespace

TEST_CASE("config.json: a RoPE for layers with a window and one for the others, in both forms") {
    const Ropes usual, scaled = {.full = {.theta = 1e6, .scaling = LinearScaling{.factor = 8}}};
    CHECK(ropes_of("") == usual);
    CHECK(ropes_of(R"("rope_parameters": null, "rope_scaling": {})") == usual);
    CHECK(ropes_of(R"("rope_parameters": {"full_attention": null, "sliding_attention": {}})") == usual);
    CHECK(ropes_of(R"("rope_scaling": {"factor": 8.0, "rope_type": "linear"})") == scaled);
    CHECK(ropes_of(R"("rope_theta": 1e6, "rope_local_base_freq": 1e4,
                      "rope_scaling": {"factor": 8.0, "type": "linear", "rope_type": "linear"})") == scaled);
    CHECK(ropes_of(R"("rope_scaling": {"type": "default"})") == usual);
    CHECK(ropes_of(R"("rope_parameters": {"full_attention": {"type": "linear", "factor": 8}})") == scaled);
    CHECK(ropes_of(R"("rope_theta": 2e6, "rope_local_base_freq": 3e4)") ==
          Ropes{.full = {.theta = 2e6}, .windowed = {.theta = 3e4}});
    const std::string nested = R"("rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 2e6, "factor": 8},
        "sliding_attention": {"rope_type": "yarn", "rope_theta": 3e4, "factor": 4,
                              "original_max_position_embeddings": 64}})";
    const Ropes both = {
        .full = {.theta = 2e6, .scaling = LinearScaling{.factor = 8}},
        .windowed = {.theta = 3e4, .scaling = YarnScaling{.factor = 4, .original_positions = 64}}};
    CHECK(ropes_of(nested) == both);
    CHECK(ropes_of(nested + R"(, "rope_theta": 2e6, "rope_local_base_freq": 3e4,
                               "rope_scaling": {"rope_type": "linear", "factor": 8})") == both);
    for (const Ropes& ropes : {usual, scaled, both})
        for (const char* key : {local_theta, static_cast<const char*>(nullptr)}) {
            Json json = Json::object();
            write_hub_ropes(json, ropes.full, ropes.windowed, key);
            Ropes back;
            read_hub_ropes(JsonView(json, "written"), back.full, back.windowed, 512, key);
            CHECK(back == ropes);
        }
    Json json = Json::object();
    write_hub_ropes(json, scaled.full, {}, nullptr);  // no layer has a window
    CHECK(JsonView(json, "x")["rope_parameters"]["sliding_attention"].value().text() ==
          JsonView(json, "x")["rope_parameters"]["full_attention"].value().text());
}

TEST_CASE("config.json: RoPEs of two kinds of layers that contradict each other are refused") {
    CHECK_THAT(refusal_of_ropes(R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e6})"),
               Contains("rope_parameters.rope_type is not a type of layer") &&
                   Contains("write the keys in rope_parameters.full_attention and in "
                            "rope_parameters.sliding_attention"));
    CHECK_THAT(refusal_of_ropes(R"("rope_parameters": 3)"), Contains("rope_parameters must be an object"));
    CHECK_THAT(refusal_of_ropes(R"("rope_parameters": {"full_attention": 3})"),
               Contains("rope_parameters.full_attention must be an object"));
    CHECK_THAT(
        refusal_of_ropes(R"("rope_theta": 2e6, "rope_parameters": {"full_attention":
                                   {"rope_theta": 1e6}})"),
        Contains("rope_theta is 2000000.0, but rope_parameters.full_attention.rope_theta is 1000000.0"));
    CHECK_THAT(refusal_of_ropes(R"("rope_local_base_freq": 2e4, "rope_parameters": {"sliding_attention":
                                   {"rope_theta": 1e4}})"),
               Contains("rope_local_base_freq is 20000.0, but rope_parameters.sliding_attention.rope_theta "
                        "is 10000.0"));
    CHECK_THAT(refusal_of_ropes(R"("rope_scaling": {"rope_type": "linear", "factor": 8},
                                   "rope_parameters": {"full_attention": {"rope_type": "default"}})"),
               Contains("rope_scaling is {\"rope_type\":\"linear\",\"factor\":8}, but "
                        "rope_parameters.full_attention is {\"rope_type\":\"default\"}: they must agree"));
    CHECK_THAT(
        refusal_of_ropes(R"("rope_scaling": {"type": "linear", "factor": 8})"),
        Contains("rope_scaling.type must be named rope_type: transformers 4 scales RoPE by a type, and "
                 "transformers 5 does not scale it for this architecture (for no scaling, set "
                 "rope_scaling to null), is \"linear\""));
    CHECK_THAT(refusal_of_ropes(R"("rope_parameters": {"sliding_attention": {"rope_type": "linear"}})"),
               Contains("rope_parameters.sliding_attention.factor is missing"));
    CHECK_THAT(refusal_of_ropes(R"("rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}})"),
               Contains("partial_rotary_factor must be 1"));
    const std::string once = R"("rope_theta": 2e4)";
    CHECK_THAT(refusal_of_ropes(once), Contains("read without complaint"));
    CHECK_THAT(
        refusal_of_ropes(once, nullptr),
        Contains("rope_theta must be 10000, or rope_parameters.sliding_attention.rope_theta must say "
                 "what the layers with a window have: transformers 4 takes rope_theta for them too, and "
                 "transformers 5 takes 10000, is 20000"));
    CHECK_THAT(
        refusal_of_ropes(once + R"(, "rope_parameters": {"sliding_attention": {"rope_theta": 7}})", nullptr),
        Contains("read without complaint"));
}
