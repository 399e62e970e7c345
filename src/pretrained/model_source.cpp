// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/model_source.hpp"

#include "coeus/comm/together.hpp"
#include "coeus/file/json.hpp"

namespace coeus {

namespace {

NormType norm_type_of(const std::string& name) {
    if (name == "layernorm") return NormType::layer_norm;
    if (name == "np_layernorm") return NormType::np_layer_norm;
    return NormType::rms_norm;  // rmsnorm, fused_rmsnorm; the deck's rules allow no other
}

const char* name_of(NormType type) {
    switch (type) {
        case NormType::rms_norm: return "rmsnorm";
        case NormType::layer_norm: return "layernorm";
        case NormType::np_layer_norm: return "np_layernorm";
    }
    return "";
}

// Sets a field where the deck overrides it.
template <class Field, class Value>
void override_with(const std::optional<Value>& value, Field& field) {
    if (value) field = Field(*value);
}

// A new width of the model takes the feed-forward's along, by the flavour's own rule.
void override_ffn_width(const Config::Model& deck, DecoderConfig& model) {
    if (deck.ffn_hidden) {
        model.ffn_hidden = *deck.ffn_hidden;
        model.ffn_rule.reset();
        return;
    }
    if (!deck.dim && !deck.ffn_dim_multiplier && !deck.multiple_of) return;
    if (!model.ffn_rule && !deck.ffn_dim_multiplier)
        throw ConfigError(
            "model.{} = {}: config.json gives the feed-forward width as a number, {}, from which no other "
            "follows; set model.ffn_hidden as well",
            deck.dim ? "dim" : "multiple_of", deck.dim ? *deck.dim : *deck.multiple_of, model.ffn_hidden);
    FfnRule rule = model.ffn_rule.value_or(FfnRule{});
    override_with(deck.ffn_dim_multiplier, rule.multiplier);
    override_with(deck.multiple_of, rule.multiple_of);
    if (rule.multiplier > 1000)
        throw ConfigError("model.ffn_dim_multiplier = {}: must be at most 1000 (usual: 1 to 1.5)",
                          rule.multiplier);
    model.ffn_rule = rule;
    model.ffn_hidden = rule.width(model.dim);
}

void apply_overrides(const Config::Model& deck, DecoderConfig& model) {
    const bool new_width = deck.dim || deck.n_heads;
    override_with(deck.dim, model.dim);
    override_with(deck.n_layers, model.layers);
    override_with(deck.n_heads, model.heads);
    // heads without their own keys stay so where only the number of heads is given
    if (deck.n_heads && !deck.n_kv_heads && model.kv_heads > *deck.n_heads) model.kv_heads = *deck.n_heads;
    override_with(deck.n_kv_heads, model.kv_heads);
    if (deck.head_dim)
        model.head_dim = *deck.head_dim;
    else if (new_width)
        model.head_dim = model.heads > 0 && model.dim % model.heads == 0 ? model.dim / model.heads : 0;
    override_ffn_width(deck, model);
    override_with(deck.vocab_size, model.vocab);
    override_with(deck.rope_theta, model.rope_theta);
    if (deck.rope_scaling_factor) {
        RopeScaling scaling = model.rope_scaling.value_or(RopeScaling{});
        scaling.factor = *deck.rope_scaling_factor;
        model.rope_scaling.reset();
        if (scaling.factor != 1) model.rope_scaling = scaling;
    }
    override_with(deck.norm_eps, model.norm_eps);
    override_with(deck.tied_embeddings, model.tied);
    override_with(deck.max_seq_len, model.max_seq_len);
    model.norm_type = norm_type_of(deck.norm_type);
}

// The newest family of an architecture: Llama 2 and 3 share theirs, and differ only in numbers that
// config.json has.
const ModelFamily& family_of_architecture(const std::string& architecture) {
    const ModelFamily* found = nullptr;
    for (const ModelFamily& family : model_families())
        if (family.hub_architecture == architecture) found = &family;
    require(found != nullptr, "read_hub_config accepts known architectures only");
    return *found;
}

}  // namespace

DecoderConfig model_from_hub(const std::string& folder) {
    std::vector<std::string> architectures;
    for (const ModelFamily& family : model_families()) architectures.push_back(family.hub_architecture);
    const HubConfig hub = read_hub_config(folder, architectures);
    DecoderConfig model{.family = family_of_architecture(hub.architecture).name,
                        .flavor = "hf",
                        .dim = hub.hidden_size,
                        .layers = hub.layers,
                        .heads = hub.heads,
                        .kv_heads = hub.kv_heads,
                        .head_dim = hub.head_dim,
                        .ffn_hidden = hub.intermediate_size,
                        .vocab = hub.vocab_size,
                        .rope_theta = hub.rope_theta,
                        .rope_scaling = {},
                        .norm_eps = hub.rms_norm_eps,
                        .tied = hub.tied,
                        .max_seq_len = hub.max_positions};
    if (const auto& scaling = hub.rope_scaling)
        model.rope_scaling = RopeScaling{.factor = scaling->factor,
                                         .low_frequency = scaling->low_freq_factor,
                                         .high_frequency = scaling->high_freq_factor,
                                         .original_positions = scaling->original_positions};
    model.validate();
    return model;
}

HubConfig hub_config_of(const DecoderConfig& model) {
    const ModelFamily& family = find_family(model.family);
    if (model.norm_type != NormType::rms_norm)
        throw ConfigError(
            "a model with norm_type \"{}\" has no counterpart in a Hugging Face folder: {} has "
            "RMS norms",
            name_of(model.norm_type), family.hub_architecture);
    HubConfig hub{.architecture = family.hub_architecture,
                  .hidden_size = model.dim,
                  .layers = model.layers,
                  .heads = model.heads,
                  .kv_heads = model.kv_heads,
                  .head_dim = model.head_dim,
                  .intermediate_size = model.ffn_hidden,
                  .vocab_size = model.vocab,
                  .max_positions = model.max_seq_len,
                  .rope_theta = model.rope_theta,
                  .rms_norm_eps = model.norm_eps,
                  .rope_scaling = {},
                  .tied = model.tied};
    if (const auto& scaling = model.rope_scaling)
        hub.rope_scaling = HubConfig::RopeScaling{.factor = scaling->factor,
                                                  .low_freq_factor = scaling->low_frequency,
                                                  .high_freq_factor = scaling->high_frequency,
                                                  .original_positions = scaling->original_positions};
    return hub;
}

DecoderConfig model_from_deck(const Config& config) {
    const ModelFamily& family = find_family(config.model.name);
    DecoderConfig model = config.model.flavor == "hf" ? model_from_hub(config.model.hf_assets_path)
                                                      : find_flavor(family, config.model.flavor);
    model.family = family.name;
    apply_overrides(config.model, model);
    model.validate();
    const bool validated = config.validation.enable && config.validation.seq_len > config.training.seq_len;
    const int64_t seq_len = validated ? config.validation.seq_len : config.training.seq_len;
    if (seq_len > model.max_seq_len)
        throw ConfigError("{}.seq_len = {}: {} {} allows at most {}; lower it, or raise model.max_seq_len",
                          validated ? "validation" : "training", seq_len, model.family, model.flavor,
                          model.max_seq_len);
    if (config.checkpoint.last_save_in_hf) hub_config_of(model);  // refused now, not after the last step
    return model;
}

DecoderConfig model_from_deck(const Config& config, const Communicator& ranks) {
    if (config.model.flavor != "hf") return model_from_deck(config);  // reads nothing
    std::string text;
    on_first_rank(ranks, [&] { text = describe_model(model_from_deck(config)); });
    return model_from_description(broadcast_text(ranks, text), config.model.hf_assets_path);
}

std::string describe_model(const DecoderConfig& model) {
    Json json = Json::object();
    json.set("family", model.family)
        .set("flavor", model.flavor)
        .set("dim", model.dim)
        .set("n_layers", model.layers);
    json.set("n_heads", model.heads).set("n_kv_heads", model.kv_heads).set("head_dim", model.head_dim);
    json.set("ffn_hidden", model.ffn_hidden)
        .set("vocab_size", model.vocab)
        .set("rope_theta", model.rope_theta);
    if (const auto& scaling = model.rope_scaling)
        json.set("rope_scaling", Json::object()
                                     .set("factor", scaling->factor)
                                     .set("low_frequency", scaling->low_frequency)
                                     .set("high_frequency", scaling->high_frequency)
                                     .set("original_positions", scaling->original_positions));
    json.set("norm_eps", model.norm_eps).set("norm_type", name_of(model.norm_type));
    json.set("tied_embeddings", model.tied).set("max_seq_len", model.max_seq_len);
    return json.text();
}

DecoderConfig model_from_description(const std::string& description, const std::string& source) {
    const JsonDocument document = JsonDocument::parse(description, source + " (model)");
    const JsonView json = document.root();
    DecoderConfig model{.family = json.string("family"),
                        .flavor = json.string("flavor"),
                        .dim = json.integer("dim"),
                        .layers = json.integer("n_layers"),
                        .heads = json.integer("n_heads"),
                        .kv_heads = json.integer("n_kv_heads"),
                        .head_dim = json.integer("head_dim"),
                        .ffn_hidden = json.integer("ffn_hidden"),
                        .vocab = json.integer("vocab_size"),
                        .rope_theta = json.number("rope_theta"),
                        .norm_eps = json.number("norm_eps"),
                        .norm_type = norm_type_of(json.string("norm_type")),
                        .tied = json.boolean("tied_embeddings"),
                        .max_seq_len = json.integer("max_seq_len")};
    if (const auto scaling = json.find("rope_scaling"))
        model.rope_scaling = RopeScaling{.factor = scaling->number("factor"),
                                         .low_frequency = scaling->number("low_frequency"),
                                         .high_frequency = scaling->number("high_frequency"),
                                         .original_positions = scaling->number("original_positions")};
    model.validate();
    return model;
}

}  // namespace coeus
