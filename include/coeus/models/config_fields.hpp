// SPDX-License-Identifier: Apache-2.0
// The fields of a model's configuration, each listed once. Descriptions in checkpoints, options of decks
// ("model.<name>"), config.json of Hugging Face folders, comparisons and checks all use this list.
#pragma once

#include "coeus/models/config_field.hpp"
#include "coeus/models/decoder_config.hpp"

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace coeus {

/// Calls visit(ConfigField, value) for each field that the model has: those of its kind of attention, and no
/// others. Values are std::string, int64_t, double, bool, enumerations, RopeScaling.
template <class Visit>
void for_each_field(ConfigOf<DecoderConfig> auto& c, Visit&& visit) {
    using enum FieldKind;
    visit(ConfigField{.name = "family", .kind = identity, .is_required = true}, c.family);
    visit(ConfigField{.name = "flavor", .kind = identity, .is_required = true}, c.flavor);
    visit(ConfigField::size("dim", "hidden_size"), c.dim);
    visit(ConfigField{.name = "n_layers", .hub = "num_hidden_layers", .is_required = true, .most = 1 << 16},
          c.layers);
    std::visit([&](auto& attention) { for_each_field(attention, visit); }, c.attention);
    for_each_field(c.feed_forward, visit);
    visit(ConfigField{.name = "vocab_size", .hub = "vocab_size", .is_required = true, .most = 0x7fffffff},
          c.vocab);
    for_each_field(c.rope, visit);
    if (!c.is_latent()) for_each_field(c.window_rope, visit);
    visit(ConfigField{.name = "norm_eps", .hub = "rms_norm_eps", .kind = constant, .usual = "1e-5"},
          c.norm_eps);
    visit(ConfigField{.name = "norm_type", .kind = constant}, c.norm_type);
    visit(ConfigField{.name = "norm_placement", .is_later = true}, c.norm_placement);
    visit(ConfigField{.name = "norm_offset", .kind = constant, .is_later = true}, c.norm_offset);
    visit(ConfigField{.name = "tied_embeddings", .hub = "tie_word_embeddings"}, c.tied);
    visit(ConfigField{.name = "embedding_scale", .kind = constant, .is_later = true, .usual = "1"},
          c.embedding_scale);
    visit(ConfigField{.name = "residual_scale", .kind = constant, .is_later = true, .usual = "1"},
          c.residual_scale);
    visit(ConfigField{.name = "logits_scale", .kind = constant, .is_later = true, .usual = "1"},
          c.logits_scale);
    visit(ConfigField{.name = "parallel_block", .is_later = true}, c.parallel_block);
    visit(
        ConfigField{
            .name = "max_seq_len", .hub = "max_position_embeddings", .kind = limit, .most = most_positions},
        c.max_seq_len);
    visit(ConfigField{.name = "window_period", .kind = constant, .is_later = true}, c.windowed.period);
    visit(ConfigField{.name = "window_first_layer", .kind = constant, .is_later = true, .least = 0},
          c.windowed.first);
    visit(ConfigField{.name = "window_layers", .kind = constant, .is_later = true}, c.windowed.word);
    if (!c.is_latent()) {
        visit(ConfigField{.name = "nope_period", .kind = constant, .is_later = true, .least = 0},
              c.without_rope.period);
        visit(ConfigField{.name = "nope_first_layer", .kind = constant, .is_later = true, .least = 0},
              c.without_rope.first);
        visit(ConfigField{.name = "nope_layers", .kind = constant, .is_later = true}, c.without_rope.word);
    }
    for_each_field(c.moe, visit);
    visit(ConfigField{.name = "moe.layer_period", .is_later = true}, c.moe_layers.period);
    visit(ConfigField{.name = "n_dense_layers", .is_later = true, .least = 0}, c.moe_layers.first);
    visit(ConfigField{.name = "moe.layers", .is_later = true}, c.moe_layers.word);
    visit(ConfigField{.name = "initial_values", .kind = limit, .is_later = true}, c.initial_values);
    for_each_field(c.mtp, visit);
    visit(
        ConfigField{
            .name = "z_loss_weight", .kind = limit, .is_later = true, .may_be_zero = true, .usual = "1e-4"},
        c.z_loss_weight);
}

/// The description of a model that a checkpoint contains: JSON with every field.
std::string describe_model(const DecoderConfig& model);
/// Reads a description and validates it; a missing field that is not required has its default. ConfigError
/// naming the file, `source`; it also refuses a field of a kind of attention that the model does not have.
DecoderConfig model_from_description(const std::string& description, const std::string& source);

/// A field in which two models differ, with its values as JSON.
struct FieldDifference {
    ConfigField field;
    std::string ours, theirs;
};
std::vector<FieldDifference> differences(const DecoderConfig& ours, const DecoderConfig& theirs);

/// The value that a deck gives to a field, looked up by name, or nothing.
using FieldValue = std::variant<bool, int64_t, double, std::string>;
using GivenFields = std::function<std::optional<FieldValue>(const std::string& name)>;
/// Sets the fields that are given, and those that depend on them: width of a head, key/value heads, and the
/// feed-forward width by `ffn_dim_multiplier` and `multiple_of` (FfnRule). ConfigError if a dependent field
/// cannot be computed; if the model has no such field, because its attention is of another kind; or if the
/// number of layers changes, and the model has a list of its layers.
void override_fields(DecoderConfig& model, const GivenFields& given);

}  // namespace coeus
