// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/hub_model.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/hub_json.hpp"
#include "coeus/file/hub_name.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/registry.hpp"
#include "hub_missing.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

namespace coeus {

namespace {

namespace fs = std::filesystem;

// Keys that do not affect the model: types, tokens, versions, and how transformers starts or runs it.
const std::set<std::string> without_meaning = {
    "_name_or_path", "architectures",        "auto_map",   "bos_token_id", "dtype",
    "eos_token_id",  "initializer_range",    "model_type", "pad_token_id", "pretraining_tp",
    "torch_dtype",   "transformers_version", "use_cache"};

// Dropout and noise, which transformers applies while it trains.
const std::set<std::string> random_in_training = {"attention_dropout",  "attn_pdrop",  "embd_pdrop",
                                                  "hidden_dropout",     "resid_pdrop", "residual_dropout",
                                                  "router_jitter_noise"};

// The text model of a folder that has other parts too is an object with this key.
const std::string text_key = "text_config";

std::string path_in_model(std::string path) {
    if (path.starts_with(text_key + ".")) path.erase(0, text_key.size() + 1);
    return path;
}

bool has_no_meaning(const std::string& path) {
    const std::string key = path_in_model(path);
    return without_meaning.contains(key) || random_in_training.contains(key);
}

// Adds the keys of an object, and of the objects in it, that nobody asked for.
void add_unknown(std::vector<std::string>& unknown, const JsonView& object,
                 const std::set<std::string>& asked) {
    for (const auto& [name, value] : object.items()) {
        if (path_in_model(value.path()) == "quantization_config")
            continue;  // of the weights: file/packed_formats.hpp
        const bool is_idle = has_no_meaning(value.path());
        if (!asked.contains(value.path()) && !is_idle)
            unknown.push_back(value.path());
        else if (value.is_object() && !is_idle)
            add_unknown(unknown, value, asked);
    }
}

bool is_zero(const Json& value) {
    const int64_t* integer = value.as_integer();
    const double* real = value.as_real();
    return (integer && *integer == 0) || (real && *real == 0);
}

std::vector<std::string> not_applied_in(const JsonView& config) {
    std::vector<std::string> all;
    for (const std::string& key : random_in_training)
        if (const auto value = config.find(key); value && !is_zero(value->value()))
            all.push_back(fmt::format("{} = {}", key, value->value().text()));
    return all;
}

// What a folder without config.json is instead.
std::string about_missing_config(const std::string& folder) {
    if (std::string hint = download_hint(folder); !hint.empty()) return hint;
    for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json"})
        if (exists_patiently(fs::path(folder) / name))
            return fmt::format(
                "; {} has a tokenizer and no model. A folder of the Hub has both: config.json describes the "
                "model. To train a new model with this tokenizer, choose a size as model.flavor (`coeus help "
                "options flavor`)",
                folder);
    return "; a Hugging Face folder has config.json, which describes the model";
}

// The "model_type"s that are known, each once.
std::vector<std::string> known_types(std::span<const ModelFamily> families) {
    std::vector<std::string> types;
    for (const ModelFamily& family : families)
        for (const std::string& type : family.model_types)
            if (std::ranges::find(types, type) == types.end()) types.push_back(type);
    return types;
}

// The architecture of a "model_type"; "" if no family has it.
std::string architecture_of_type(std::span<const ModelFamily> families, const std::string& type) {
    std::string architecture;
    for (const ModelFamily& family : families)
        for (size_t i = 0; i < family.model_types.size(); ++i)
            if (family.model_types[i] == type) architecture = family.architectures[i];
    return architecture;
}

std::vector<std::string> names_in(const JsonView& config) {
    const auto list = config.find("architectures");
    return list ? list->strings() : std::vector<std::string>();
}

[[noreturn]] void reject_type(std::span<const ModelFamily> families, const JsonView& config) {
    config["model_type"].reject(
        fmt::format("must be one of {}, because architectures names none (others are not implemented yet)",
                    join(known_types(families), ", ")));
}

// The family whose text model a model with further parts has, if its own config does not say more.
const ModelFamily* find_wrapped(std::span<const ModelFamily> families, const JsonView& config) {
    for (const std::string& name : names_in(config))
        for (const ModelFamily& family : families)
            if (std::ranges::find(family.wrappers, name) != family.wrappers.end()) return &family;
    return nullptr;
}

// The architecture of a model's text model; "" if it has none, or one of an unknown type in a model that is
// unknown too.
std::string architecture_of_text(std::span<const ModelFamily> families, const JsonView& config) {
    const ModelFamily* wrapped = find_wrapped(families, config);
    if (!wrapped && !config.contains(text_key)) return "";
    const JsonView text = config[text_key];
    const std::string type = text.string("model_type", "");
    if (!names_in(text).empty() || !architecture_of_type(families, type).empty())
        return hub_architecture(families, text);
    if (wrapped && !type.empty()) reject_type(families, text);
    return wrapped ? wrapped->architectures.front() : "";
}

// The keys of the model that is read: those of the whole object, or those of its text model. They also say
// which architecture it is, whatever said it, because families find it in this key.
Json keys_of_model(const JsonView& config, const std::string& architecture) {
    Json keys = config.contains(text_key) ? config[text_key].value() : config.value();
    keys.set("architectures", std::vector<std::string>{architecture});
    return keys;
}

bool has_head(const Safetensors& weights) {
    return std::ranges::any_of(weights.names(),
                               [](const std::string& name) { return name.ends_with("lm_head.weight"); });
}

// The whole model says whether the head of the text model is its table. Folders of transformers 5 may say so
// and have a head of their own, or have none although the text model should have one: the weights decide.
void inherit_tied(const JsonView& config, Json& text, const std::string& folder) {
    constexpr const char* tied = "tie_word_embeddings";
    if (!config.contains(tied)) return;
    const bool outside = config.boolean(tied),
               inside = JsonView(text, config.file(), text_key).boolean(tied, outside);
    const bool is_clear = outside == inside || !Safetensors::is_at(folder);
    text.set(tied, is_clear ? outside : !has_head(Safetensors::open(folder)));
}

}  // namespace

DecoderConfig model_of_keys(const ModelFamily& family, const JsonView& json) {
    DecoderConfig config;
    HubKeys keys(family, json);
    keys.constant("is_causal", true, "attention to later tokens is not implemented yet");
    family.hub_keys(keys, config);
    return config;
}

HubModel read_hub_model(const std::string& folder, const std::string& family_name) {
    if (!family_name.empty()) find_family(family_name);  // throws if there is none
    const fs::path file = fs::path(folder) / "config.json";
    if (!is_file_patiently(file))
        throw ConfigError("{}: this file does not exist{}", file.string(), about_missing_config(folder));
    const JsonDocument document = read_hub_config(folder);
    const ModelFamily& family = claimed_family(model_families(), document.root(), family_name);
    const bool is_part = document.root().contains(text_key);
    Json keys = keys_of_model(document.root(), hub_architecture(model_families(), document.root()));
    if (is_part) inherit_tied(document.root(), keys, folder);
    const JsonView root(keys, file.string(), is_part ? text_key : "");
    std::set<std::string> asked;
    HubModel model;
    model.config = model_of_keys(family, root.noting(asked));
    model.config.family = family.name;
    model.config.flavor = "hf";
    model.config.validate();
    add_unknown(model.unknown_keys, root, asked);
    model.not_applied = not_applied_in(root);
    return model;
}

std::string HubModel::about_not_applied() const {
    if (not_applied.empty()) return "";
    return join(not_applied, ", ") +
           ": Coeus trains without dropout and without noise of routers, as if they were 0";
}

std::string hub_architecture(std::span<const ModelFamily> families, const JsonView& config) {
    const std::vector<std::string> names = names_in(config);
    if (names.size() > 1) config["architectures"].reject("must name one architecture");
    if (std::string of_text = architecture_of_text(families, config); !of_text.empty()) return of_text;
    const std::string type = config.string("model_type", "");
    std::string of_type = architecture_of_type(families, type);
    if (names.empty() && !of_type.empty()) return of_type;
    if (names.empty() && !type.empty()) reject_type(families, config);
    if (names.empty())
        throw ConfigError(
            "{}: neither architectures nor model_type says which model this is; add one of them, such as "
            "\"architectures\": [\"LlamaForCausalLM\"]",
            config.file());
    const bool is_known = std::ranges::any_of(families, [&](const ModelFamily& family) {
        return std::ranges::find(family.architectures, names[0]) != family.architectures.end();
    });
    if (is_known && !of_type.empty() && of_type != names[0])
        throw ConfigError(
            "{}: architectures is {}, but model_type is \"{}\", the type of {}, by which transformers goes: "
            "correct one of the two",
            config.file(), names[0], type, of_type);
    return names[0];
}

std::string family_of_folder(const std::string& folder) {
    const fs::path file = fs::path(folder) / "config.json";
    if (!is_file_patiently(file)) return "";
    try {
        return claimed_family(model_families(), read_hub_config(folder).root(), "").name;
    } catch (const ConfigError&) {
        return "";  // whoever reads the folder says why
    }
}

const ModelFamily& claimed_family(std::span<const ModelFamily> families, const JsonView& config,
                                  const std::string& named) {
    const std::string architecture = hub_architecture(families, config);
    const auto takes = [&](const ModelFamily& family) {
        return std::ranges::find(family.architectures, architecture) != family.architectures.end();
    };
    const ModelFamily* latest = nullptr;
    for (const ModelFamily& family : families)
        if (takes(family)) {
            if (family.name == named) return family;
            latest = &family;
        }
    const std::string missing = missing_arithmetic(architecture);
    if (!latest)
        throw ConfigError("{}: architecture {} is not implemented yet{}; implemented: {}", config.file(),
                          architecture, missing.empty() ? "" : ", because it needs " + missing,
                          join(hub_architectures(), ", "));
    if (named.empty()) return *latest;
    throw ConfigError("model.name = \"{}\": {} has architecture {}, which belongs to model.name = \"{}\"",
                      named, config.file(), architecture, latest->name);
}

std::vector<std::string> hub_architectures() {
    std::vector<std::string> all;
    for (const ModelFamily& family : model_families())
        for (const auto* names : {&family.architectures, &family.wrappers})
            for (const std::string& architecture : *names)
                if (std::ranges::find(all, architecture) == all.end()) all.push_back(architecture);
    return all;
}

void warn_of_unknown_keys(const std::string& folder, const HubModel& model) {
    if (!model.unknown_keys.empty())
        log::warn("{}/config.json: Coeus ignores {}", folder, join(model.unknown_keys, ", "));
}

DecoderConfig model_from_hub(const std::string& folder, const std::string& family) {
    const HubModel model = read_hub_model(folder, family);
    warn_of_unknown_keys(folder, model);
    return model.config;
}

namespace {

// The epsilon of the norms of latents, which is not in config.json.
void keep_latent_norm_eps(const LatentAttentionConfig& model, LatentAttentionConfig& back) {
    if (back.latent_norm_eps == model.latent_norm_eps) return;
    log::warn("the norms of latents have epsilon {}, which config.json cannot express: readers use {}",
              model.latent_norm_eps, back.latent_norm_eps);
    back.latent_norm_eps = model.latent_norm_eps;
}

// A folder has the layers that a rule takes, and not the rule.
void keep_rules(const DecoderConfig& model, DecoderConfig& back) {
    for (const auto choice :
         {&DecoderConfig::windowed, &DecoderConfig::without_rope, &DecoderConfig::moe_layers})
        if ((back.*choice).has_same(model.*choice, model.layers)) back.*choice = model.*choice;
}

// Dynamic scaling begins at max_position_embeddings, so that this cannot say how long rows may be.
void keep_limit(const DecoderConfig& model, DecoderConfig& back) {
    if (!std::holds_alternative<DynamicScaling>(model.rope.scaling) || back.max_seq_len == model.max_seq_len)
        return;
    log::warn(
        "max_position_embeddings is {}, from which RoPE is scaled: config.json cannot express that "
        "max_seq_len is {}",
        back.max_seq_len, model.max_seq_len);
    back.max_seq_len = model.max_seq_len;
}

}  // namespace

Json hub_config_of(const DecoderConfig& model) {
    const ModelFamily& family = find_hub_family(model.family);
    Json json = Json::object();
    HubKeys keys(family, json);
    DecoderConfig copy = model;
    family.hub_keys(keys, copy);
    // a value that config.json cannot express is read back as another one
    DecoderConfig back = model_of_keys(family, JsonView(json, "config.json"));
    back.family = model.family;
    back.flavor = model.flavor;
    // these do not matter to weights that exist
    back.initial_values = model.initial_values;
    back.moe.balance_rate = model.moe.balance_rate;
    back.moe.sequence_balance = model.moe.sequence_balance;
    back.mtp.scale = model.mtp.scale;
    back.z_loss_weight = model.z_loss_weight;
    keep_rules(model, back);
    keep_limit(model, back);
    if (model.is_latent() && back.is_latent()) keep_latent_norm_eps(model.latent(), back.latent());
    for (const FieldDifference& difference : differences(model, back))
        throw ConfigError("a model with {} = {} cannot be written as a Hugging Face folder: {} has {}",
                          difference.field.name, difference.ours,
                          JsonView(json, "config.json")["architectures"].strings().front(),
                          difference.theirs);
    return json;
}

}  // namespace coeus
