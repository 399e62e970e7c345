// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/model_setup.hpp"

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
    if (deck.ffn_hidden)
        model.ffn_hidden = *deck.ffn_hidden;
    else if (deck.dim || deck.ffn_dim_multiplier || deck.multiple_of)
        model.ffn_hidden =
            llama_ffn_hidden(model.dim, deck.ffn_dim_multiplier.value_or(1), deck.multiple_of.value_or(256));
    override_with(deck.vocab_size, model.vocab);
    override_with(deck.rope_theta, model.rope_theta);
    if (deck.rope_scaling_factor) {
        model.rope_scaling.reset();
        if (*deck.rope_scaling_factor != 1)
            model.rope_scaling = RopeScaling{.factor = *deck.rope_scaling_factor};
    }
    override_with(deck.norm_eps, model.norm_eps);
    override_with(deck.tied_embeddings, model.tied);
    override_with(deck.max_seq_len, model.max_seq_len);
    model.norm_type = norm_type_of(deck.norm_type);
}

}  // namespace

DecoderConfig model_from_deck(const Config& config) {
    const ModelFamily& family = find_family(config.model.name);
    DecoderConfig model = find_flavor(family, config.model.flavor);
    apply_overrides(config.model, model);
    model.validate();
    const int64_t seq_len = config.training.seq_len;
    if (seq_len > model.max_seq_len)
        throw ConfigError(
            "training.seq_len = {}: {} {} allows at most {}; lower it, or raise model.max_seq_len", seq_len,
            model.family, model.flavor, model.max_seq_len);
    return model;
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
