// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/decoder_config.hpp"

#include "coeus/base/error.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/model_counts.hpp"

#include <algorithm>
#include <utility>

namespace coeus {

namespace {

// A layer's attention, from what the layers share.
GroupedAttentionConfig attention_of(const DecoderConfig& model, GroupedAttentionConfig a, int64_t number) {
    if (!model.windowed.has(number)) a.window = 0;
    a.rope = !model.without_rope.has(number);
    if (a.rope && !a.temperature_everywhere) a.temperature = {};
    if (a.rope && model.windowed.has(number)) a.rope_table = model.ropes().size() - 1;
    if (!a.rope) a.chunk = 0;
    if (!a.rope && a.qk_norm == QkNorm::after_rope) a.qk_norm = QkNorm::none;
    return a;
}
LatentAttentionConfig attention_of(const DecoderConfig& model, LatentAttentionConfig a, int64_t number) {
    if (!model.windowed.has(number)) a.window = 0;
    return a;
}

}  // namespace

std::vector<RopeConfig> DecoderConfig::ropes() const {
    std::vector<RopeConfig> all = {rope};
    if (RopeConfig in_windows = window_rope.beside(rope); in_windows != rope)
        all.push_back(std::move(in_windows));
    return all;
}

LayerConfig DecoderConfig::layer(int64_t number) const {
    require(number >= 0 && number < all_layers(), "the model has no such layer");
    number = std::min(number, layers - 1);
    LayerConfig config = {
        .attention =
            std::visit([&](const auto& kind) -> AttentionConfig { return attention_of(*this, kind, number); },
                       attention),
        .feed_forward = feed_forward};
    if (moe.experts > 0 && moe_layers.has(number)) config.feed_forward = moe;
    return config;
}

int64_t DecoderConfig::moe_row(int64_t number) const {
    if (moe.experts == 0) return 0;
    const int64_t last = std::min(number, layers);
    return moe_layers.before(last) + (moe_layers.has(layers - 1) ? number - last : 0);
}

std::vector<int64_t> DecoderConfig::layers_with_experts() const {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < all_layers(); ++i)
        if (moe.experts > 0 && moe_layers.has(std::min(i, layers - 1))) numbers.push_back(i);
    return numbers;
}

std::vector<LayerKind> DecoderConfig::layer_kinds() const {
    std::vector<LayerKind> kinds;
    for (int64_t i = 0; i < all_layers(); ++i) {
        LayerConfig config = layer(i);
        auto same = std::ranges::find(kinds, config, &LayerKind::config);
        if (same == kinds.end()) same = kinds.insert(same, {.config = config, .layers = {}});
        same->layers.push_back(i);
    }
    return kinds;
}

namespace {

// Checks the rule for each type of value; strings and booleans have none.
template <class T>
void require_in_limits(const ConfigField&, const T&) {}
void require_in_limits(const ConfigField& field, int64_t value) {
    if (value < field.least)
        throw ConfigError("model.{} = {}: must be at least {}", field.name, value, field.least);
    if (value > field.most)
        throw ConfigError("model.{} = {}: must be at most {}", field.name, value, field.most);
}
void require_in_limits(const ConfigField& field, double value) {
    if (field.may_be_zero) {
        if (!(value >= 0))
            throw ConfigError("model.{} = {}: must be at least 0 (usual: {})", field.name, value,
                              field.usual);
    } else if (!(value > 0))
        throw ConfigError("model.{} = {}: must be greater than 0 (usual: {})", field.name, value,
                          field.usual);
}

// Only RMSNorm has kernels that add the residual path, or 1 to the weight.
void require_norms_fit(const DecoderConfig& model) {
    const bool is_before = model.norm_placement == NormPlacement::before;
    if (model.norm_type == NormType::rms_norm || (is_before && !model.norm_offset)) return;
    throw ConfigError("model.norm_type = \"{}\": must be \"rmsnorm\", because {} {} has {}",
                      model.norm_type == NormType::layer_norm ? "layernorm" : "np_layernorm", model.family,
                      model.flavor,
                      is_before ? "norms that add 1 to their weights" : "norms after its sublayers");
}

// See ParallelBlock, and DecoderConfig::residual_scale.
void require_block_fits(const DecoderConfig& model) {
    if (model.parallel_block && model.norm_placement != NormPlacement::before)
        throw ConfigError(
            "model.parallel_block = true: {} {} has norms after its sublayers, and sublayers side by side "
            "have "
            "only one norm before them; set model.parallel_block = false",
            model.family, model.flavor);
    if (model.residual_scale != 1 && model.norm_placement == NormPlacement::after)
        throw ConfigError(
            "model.residual_scale = {}: the sublayers of {} {} end with norms and do not begin with them, "
            "and "
            "the weights of these norms contain such a factor; set model.residual_scale = 1",
            model.residual_scale, model.family, model.flavor);
}

void require_digits(const char* field, const LayerChoice& choice) {
    if (choice.word.find_first_not_of("01") != std::string::npos)
        throw ConfigError("model.{} = \"{}\": must have a 1 for each layer that is meant, and a 0 for others",
                          field, choice.word);
}

}  // namespace

void DecoderConfig::validate() const {
    for_each_field(*this,
                   [](const ConfigField& field, const auto& value) { require_in_limits(field, value); });
    require_norms_fit(*this);
    require_block_fits(*this);
    require_digits("window_layers", windowed);
    require_digits("nope_layers", without_rope);
    require_digits("moe.layers", moe_layers);
    std::visit([&](const auto& kind) { require_valid(kind, dim); }, attention);
    for (const RopeConfig& one : ropes()) require_valid(one, head_sizes().rotated_dim);
    for (const LayerKind& kind : layer_kinds())
        std::visit([](const auto& part) { require_valid(part); }, kind.config.feed_forward);
    require_countable(*this);
}

}  // namespace coeus
