// SPDX-License-Identifier: Apache-2.0
// Other forms of the config.json of every golden model, which transformers wrote. Forms that mean the same
// must give the same model, whose numbers golden/models.cpp compares. A key that is absent must mean
// transformers' default (tests/data/hub_defaults). A key with another value must give another model that is
// written with this value, or a refusal that names the key: none is ignored.
#include "coeus/file/hub_json.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_model.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

struct Result {
    std::optional<HubModel> model;
    std::string message;
};

Result read(const TemporaryFolder& folder, const Json& json) {
    write_json(json, folder / "config.json");
    try {
        return {.model = read_hub_model(folder.path()), .message = ""};
    } catch (const ConfigError& error) {
        return {.model = std::nullopt, .message = error.what()};
    }
}

Json without(const Json& json, const std::string& key) {
    Json rest = Json::object();
    for (const auto& [name, value] : *json.as_object())
        if (name != key) rest.set(name, value);
    return rest;
}
Json with(const Json& json, const std::string& key, Json value) {
    return Json(json).set(key, std::move(value));
}

bool has_nested_rope(const Json& rope) {
    return std::ranges::any_of(*rope.as_object(), [](const auto& entry) { return entry.second.as_object(); });
}

// The form of transformers before version 5: theta and the rotated part beside the scaling.
Json with_older_rope(const Json& json) {
    Json older = without(json, "rope_parameters"), scaling = Json::object();
    bool is_scaled = false;
    for (const auto& [key, value] : *json.find("rope_parameters")->as_object())
        if (key == "rope_theta" || key == "partial_rotary_factor") {
            older.set(key, value);
        } else {
            is_scaled = is_scaled || (key == "rope_type" && *value.as_string() != "default");
            scaling.set(key == "rope_type" ? "type" : key, value);
        }
    return older.set("rope_scaling", is_scaled ? std::move(scaling) : Json());
}

Json with_reals(const Json& json) {
    if (const int64_t* integer = json.as_integer()) return double(*integer);
    if (!json.as_object()) return json;
    Json reals = Json::object();
    for (const auto& [key, value] : *json.as_object()) reals.set(key, with_reals(value));
    return reals;
}

// Forms of a config.json that mean the same.
std::vector<std::pair<std::string, Json>> same_forms(const Json& json) {
    Json reversed = Json::object();
    for (auto entry = json.as_object()->rbegin(); entry != json.as_object()->rend(); ++entry)
        reversed.set(entry->first, entry->second);
    std::vector<std::pair<std::string, Json>> forms = {
        {"reversed", reversed},
        {"real numbers", with_reals(json)},
        {"model_type alone", without(json, "architectures")},
        {"architectures null", with(json, "architectures", Json())},
        {"architectures empty", with(json, "architectures", Json::array())},
        {"architectures alone", without(json, "model_type")},
        {"model_type of another program", with(json, "model_type", "of_another_program")},
        {"torch_dtype", with(without(json, "dtype"), "torch_dtype", "bfloat16")},
        {"empty rope_scaling", with(json, "rope_scaling", Json::object())},
        {"null rope_scaling", with(json, "rope_scaling", Json())}};
    if (const Json* rope = json.find("rope_parameters"); rope && !has_nested_rope(*rope)) {
        Json typed = without(*rope, "rope_type");
        typed.set("type", *rope->find("rope_type"));
        forms.emplace_back("RoPE of version 4", with_older_rope(json));
        forms.emplace_back("type of RoPE", with(json, "rope_parameters", typed));
        forms.emplace_back("theta twice", with(json, "rope_theta", *rope->find("rope_theta")));
        forms.emplace_back("both objects", with(json, "rope_scaling", *rope));
    }
    return forms;
}

// Another value of a key; none: this test knows no other one.
std::optional<Json> another_value(const Json& value) {
    if (const bool* truth = value.as_boolean()) return Json(!*truth);
    if (const int64_t* integer = value.as_integer()) return Json(*integer > 0 ? 2 * *integer : int64_t(2));
    if (const double* real = value.as_real()) return Json(*real > 0 ? 2 * *real : 0.5);
    if (value.as_string()) return Json("another");
    if (value.is_null()) return Json(3);
    const Json::Array* list = value.as_array();
    if (!list || list->empty()) return std::nullopt;
    const auto is_out_of_order = [](const Json& a, const Json& b) {
        return !a.as_integer() || !b.as_integer() || *a.as_integer() >= *b.as_integer();
    };
    if (list->size() > 1 && std::ranges::adjacent_find(*list, is_out_of_order) == list->end())
        return Json(Json::Array(list->begin() + 1, list->end()));  // numbers of layers
    Json reversed = Json::array();
    for (auto entry = list->rbegin(); entry != list->rend(); ++entry) reversed.push(*entry);
    if (reversed.text() != value.text()) return reversed;
    return std::nullopt;
}

// Keys on which no model depends here: of tokens, types and other programs; and of what transformers' classes
// do not compute from them.
bool is_idle(const std::string& key, const Json& json, const DecoderConfig& usual) {
    static const std::set<std::string> idle = {
        "_name_or_path", "attention_dropout", "bos_token_id", "dtype", "eos_token_id", "initializer_range",
        "model_type", "pad_token_id", "pretraining_tp", "residual_dropout", "transformers_version",
        "use_cache",
        // of training in transformers
        "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "embd_pdrop", "resid_pdrop",
        // the length of rows, which no constant depends on
        "max_window_layers"};
    if (idle.contains(key)) return true;
    // of the two layers of this case, the last one has experts whatever these are
    // (unit/models/open_families.cpp)
    if (key == "moe_layer_end_index" || key == "moe_layer_interval") return usual.layers == 2;
    if (key == "original_max_position_embeddings") {
        const Json* type = json.find("rope_parameters")->find("rope_type");
        return type && *type->as_string() == "default";
    }
    // a list says which layers these are
    if (key == "interleave_moe_layer_step") return json.find("moe_layers");
    if (key == "no_rope_layer_interval") return json.find("no_rope_layers");
    if (key.ends_with("sliding_window_pattern")) return json.find("layer_types");
    // dense layers, of which there are none
    if (key == "intermediate_size" && usual.feed_forward.hidden == 0)
        return json.find("moe_intermediate_size");
    // a window that no layer has
    const Json* types = json.find("layer_types");
    const bool has_none = types ? types->text().find("sliding") == std::string::npos
                                : json.find("sliding_window") && json.find("sliding_window")->is_null();
    if (key == "use_sliding_window") return has_none;
    const Json* used = json.find("use_sliding_window");
    if (key == "sliding_window") return has_none || (used && !*used->as_boolean());
    return false;
}

// What a refusal may name instead of a key: the field that it gives.
std::string field_of(const std::string& key) {
    std::string name = key;
    const DecoderConfig fields;
    for_each_field(fields, [&](const ConfigField& field, const auto&) {
        if (field.hub && key == field.hub) name = field.name;
    });
    return name;
}

// `object`: "" or the object that has the key.
void check_another_value(const TemporaryFolder& folder, const Json& json, const HubModel& usual,
                         const std::string& object, const std::string& key, const Json& value) {
    const Json changed =
        object.empty() ? with(json, key, value) : with(json, object, with(*json.find(object), key, value));
    const Result result = read(folder, changed);
    CAPTURE(key, value.text(), result.message);
    if (!result.model) {
        CHECK_THAT(result.message, Contains(key) || Contains(field_of(key)) || Contains("must divide") ||
                                       Contains("model.head_dim") || Contains("columns of a head") ||
                                       Contains("model.moe.") || Contains("because the layer has") ||
                                       Contains("of type " + value.text()) ||
                                       Contains(fmt::format("for each of {} layers", value.text())));
        return;
    }
    CHECK(result.model->unknown_keys.empty());
    if (is_idle(key, json, usual.config)) return;
    CHECK_FALSE(differences(result.model->config, usual.config).empty());
    try {
        const Json written = hub_config_of(result.model->config);
        const Json* part = object.empty() ? &written : written.find(object);
        const Json* found = part->find(key);
        if (!found && !object.empty()) found = written.find(key);                       // the older place
        if (!found && key == "num_local_experts") found = written.find("num_experts");  // its other name
        REQUIRE(found);
        CHECK(with_reals(*found).text() == with_reals(value).text());
    } catch (const ConfigError& error) {
        FAIL_CHECK("a model that was read cannot be written: " << error.what());
    }
}

Json json_of(const fs::path& folder) {
    return read_hub_config(folder.string()).root().value();
}

// Every golden model whose architecture the program has.
void for_each_config(const std::function<void(const TemporaryFolder&, const Json&, const HubModel&)>& check) {
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_models()) {
        const fs::path model = golden(name);
        cases.push_back({name, [=] { return unknown_architecture(model); },
                         [=] {
                             const TemporaryFolder folder;
                             const Json json = json_of(model);
                             const Result usual = read(folder, json);
                             REQUIRE(usual.message == "");
                             check(folder, json, *usual.model);
                         }});
    }
    compare_golden(cases);
}

}  // namespace

TEST_CASE("variants of config.json: what means the same gives the same model") {
    for_each_config([](const TemporaryFolder& folder, const Json& json, const HubModel& usual) {
        for (const auto& [name, form] : same_forms(json)) {
            const Result result = read(folder, form);
            CAPTURE(name, result.message);
            REQUIRE(result.model);
            CHECK(differences(result.model->config, usual.config).empty());
            CHECK(result.model->unknown_keys.empty());
        }
    });
}

TEST_CASE("variants of config.json: a key that is absent means transformers' default, or it is missing") {
    const JsonDocument defaults =
        JsonDocument::read(fs::path(paths::source()) / "tests/data/hub_defaults/defaults.json");
    int compared = 0;
    for_each_config([&](const TemporaryFolder& folder, const Json& json, const HubModel&) {
        for (const auto& [key, value] : defaults.root()[*json.find("model_type")->as_string()].items()) {
            const Result absent = read(folder, without(json, key)),
                         usual = read(folder, with(json, key, value.value()));
            CAPTURE(key, value.value().text(), absent.message, usual.message);
            ++compared;
            if (absent.message.find(key + " is missing") != std::string::npos) continue;
            // another name of it is there; the heads of latent attention share no keys
            if (usual.message.find("they must agree") != std::string::npos ||
                usual.message.find("each head has its own keys") != std::string::npos)
                continue;
            CHECK(absent.model.has_value() == usual.model.has_value());
            if (absent.model && usual.model)
                CHECK(differences(absent.model->config, usual.model->config).empty());
        }
    });
    CHECK(compared >= 100);
}

TEST_CASE("variants of config.json: a key with another value gives another model, or is refused by name") {
    int compared = 0;
    for_each_config([&](const TemporaryFolder& folder, const Json& json, const HubModel& usual) {
        for (const auto& [key, value] : *json.as_object())
            if (const auto another = another_value(value)) {
                check_another_value(folder, json, usual, "", key, *another);
                ++compared;
            } else if (value.as_object() && !has_nested_rope(value)) {
                for (const auto& [inner, number] : *value.as_object())
                    if (const auto changed = another_value(number))
                        check_another_value(folder, json, usual, key, inner, *changed);
            }
    });
    CHECK(compared >= 100);
}
