// SPDX-License-Identifier: Apache-2.0
// config.json with huge numbers: each is refused before memory or a product depends on it.
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "hub_config.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Catch::EndsWith;

namespace {

// Keys of integers that families read, but do not write.
const std::map<std::string, std::vector<const char*>>& keys_that_are_only_read() {
    static const std::map<std::string, std::vector<const char*>> all = {
        {"qwen3_moe", {"num_local_experts"}},
        {"gpt_oss", {"experts_per_token"}},
        {"llama4_text", {"no_rope_layer_interval"}},
        {"glm4_moe", {"num_local_experts", "num_mtp_layers"}},
        {"ernie4_5_moe", {"num_experts", "num_experts_per_tok"}},
        {"smollm3", {"no_rope_layer_interval"}}};
    return all;
}

// The keys of all integers in an object and in the objects in it.
void add_integer_keys(const Json& json, std::set<std::string>& keys) {
    for (const auto& [key, value] : *json.as_object())
        if (value.as_integer())
            keys.insert(key);
        else if (value.as_object())
            add_integer_keys(value, keys);
}

// Sets a key wherever it is.
void set_everywhere(Json& json, const std::string& key, int64_t number) {
    if (json.find(key)) json.set(key, number);
    for (auto& [name, value] : *json.as_object())
        if (value.as_object()) set_everywhere(value, key, number);
}

// The model, or the message.
struct Result {
    std::optional<DecoderConfig> model;
    std::string message;
};

Result read_model(const TemporaryFolder& folder, const Json& json) {
    write_json(json, folder / "config.json");
    try {
        return {.model = read_hub_model(folder.path()).config, .message = ""};
    } catch (const ConfigError& error) {
        return {.model = std::nullopt, .message = error.what()};
    }
}

// The written form of each kind of model: the small flavours, and the architectures that have none.
std::vector<Json> hub_configs() {
    std::vector<Json> all;
    for (const auto& [family, flavor] : {std::pair("llama3", "debugmodel"),
                                         {"qwen2", "debugmodel"},
                                         {"qwen3", "debugmodel"},
                                         {"qwen3", "debugmodel_moe"},
                                         {"mistral", "debugmodel"},
                                         {"gpt_oss", "debugmodel"},
                                         {"llama4", "debugmodel_irope"},
                                         {"cwm", "debugmodel"},
                                         {"dots1", "debugmodel"},
                                         {"ernie4_5", "debugmodel_moe"},
                                         {"glm4_moe", "debugmodel"},
                                         {"glm4_moe_lite", "debugmodel"},
                                         {"mixtral", "debugmodel"},
                                         {"seed_oss", "debugmodel"},
                                         {"smollm3", "debugmodel"},
                                         {"deepseek_v3", "debugmodel"},
                                         {"deepseek_v3", "671B"}}) {
        DecoderConfig model = find_flavor(find_family(family), flavor);
        if (std::string(family) == "deepseek_v3" && std::string(flavor) == "debugmodel")
            model.moe.keeps_bias = false;  // a V2
        all.push_back(hub_config_of(model));
    }
    return all;
}

}  // namespace

TEST_CASE("config.json: a number beyond its limit is refused by its key") {
    const TemporaryFolder folder;
    const auto message = [&](const char* family, const char* flavor, const char* key, int64_t number) {
        Json json = hub_config_of(find_flavor(find_family(family), flavor));
        json.set(key, number);
        return read_model(folder, json).message;
    };
    // before anything is computed for each layer: none of these may need the memory of a huge number
    for (const char* family : {"llama3", "qwen2", "qwen3", "mistral", "gpt_oss", "llama4", "deepseek_v3"})
        REQUIRE_THAT(message(family, "debugmodel", "num_hidden_layers", (1 << 16) + 1),
                     EndsWith("config.json: num_hidden_layers must be at most 65536, is 65537"));
    const DecoderConfig fields;
    for_each_field(fields, [&](const ConfigField& field, const auto& value) {
        if constexpr (std::is_same_v<decltype(value), const int64_t&>)
            if (field.hub) {
                CAPTURE(field.hub);
                CHECK_THAT(message("llama3", "debugmodel", field.hub, field.most + 1),
                           EndsWith(fmt::format("config.json: {} must be at most {}, is {}", field.hub,
                                                field.most, field.most + 1)));
            }
    });
    CHECK_THAT(message("qwen3", "debugmodel_moe", "decoder_sparse_step", (1 << 24) + 1),
               EndsWith("config.json: decoder_sparse_step must be at most 16777216, is 16777217"));
    CHECK_THAT(message("qwen2", "debugmodel", "max_window_layers", -1),
               EndsWith("config.json: max_window_layers must be at least 0, is -1"));
    CHECK_THAT(message("deepseek_v3", "671B", "n_shared_experts", 1 << 14),
               EndsWith("config.json: n_shared_experts must be at most 8192 (its product with "
                        "moe_intermediate_size = 2048 must be at most 16777216), is 16384"));
}

TEST_CASE("config.json: huge integers end with one clear error, or mean nothing") {
    const TemporaryFolder folder;
    for (const Json& whole : hub_configs()) {
        const std::string type = *whole.find("model_type")->as_string();
        const Result usual = read_model(folder, whole);
        CAPTURE(type, usual.message);
        REQUIRE(usual.model.has_value());
        std::set<std::string> keys, idle;
        add_integer_keys(whole, keys);
        CHECK(keys.size() >= 8);
        if (const auto more = keys_that_are_only_read().find(type); more != keys_that_are_only_read().end())
            keys.insert(more->second.begin(), more->second.end());
        for (const std::string& key : keys)
            for (const int64_t huge : {int64_t(2'000'000'000'000), int64_t(1) << 62, INT64_MAX, INT64_MIN}) {
                Json json = whole;
                if (!json.find(key)) json.set(key, huge);
                set_everywhere(json, key, huge);
                const Result result = read_model(folder, json);
                CAPTURE(key, huge, result.message);
                if (result.model) {
                    CHECK(*result.model == *usual.model);
                    idle.insert(key);
                    continue;
                }
                CHECK_THAT(result.message, Contains("config.json: ") && Contains(key) &&
                                               Contains(fmt::format("{}", huge)) && !Contains("\n"));
            }
        // windows that the model does not have, groups of a greedy choice, and tokens
        static const std::set<std::string> may_be_idle = {"sliding_window", "max_window_layers", "n_group",
                                                          "topk_group", "bos_token_id"};
        for (const std::string& key : idle) {
            CAPTURE(key);
            CHECK(may_be_idle.contains(key));
        }
    }
}
