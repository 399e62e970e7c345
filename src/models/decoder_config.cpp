// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/decoder_config.hpp"

#include "coeus/base/types.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/registry.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

// Checks the rule for each type of value; strings and booleans have none.
template <class T>
void require_valid(const ConfigField&, const T&) {}
void require_valid(const ConfigField& field, int64_t value) {
    if (value < field.least)
        throw ConfigError("model.{} = {}: must be at least {}", field.name, value, field.least);
    if (value > field.most)
        throw ConfigError("model.{} = {}: must be at most {}", field.name, value, field.most);
}
void require_valid(const ConfigField& field, double value) {
    if (field.may_be_zero) {
        if (!(value >= 0))
            throw ConfigError("model.{} = {}: must be at least 0 (usual: {})", field.name, value,
                              field.usual);
    } else if (!(value > 0))
        throw ConfigError("model.{} = {}: must be greater than 0 (usual: {})", field.name, value,
                          field.usual);
}

// The divisors of n below and above a wrong value, for messages.
std::string divisors_near(int64_t n, int64_t value) {
    int64_t below = std::min(value, n), above = value;
    while (below > 1 && n % below != 0) --below;
    while (above < n && n % above != 0) ++above;
    return above > n || above == below ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

}  // namespace

LayerConfig DecoderConfig::layer(int64_t number) const {
    require(number >= 0 && number < all_layers(), "the model has no such layer");
    number = std::min(number, layers - 1);
    LayerConfig config = {attention, feed_forward, {}};
    AttentionConfig& a = config.attention;
    if (!windowed.has(number)) a.window = 0;
    a.rope = !without_rope.has(number);
    if (a.rope)
        a.temperature = {};
    else
        a.chunk = 0;
    if (!a.rope && a.qk_norm == QkNorm::after_rope) a.qk_norm = QkNorm::none;
    if (moe.experts > 0 && moe_layers.has(number)) {
        config.moe = moe;
        config.feed_forward = {};
    }
    return config;
}

int64_t DecoderConfig::moe_row(int64_t number) const {
    const auto [period, first] = moe_layers;
    if (moe.experts == 0 || period <= 0) return 0;
    const int64_t last = std::min(number, layers);
    const int64_t of_mtp = moe_layers.has(layers - 1) ? number - last : 0;
    return (last > first ? div_ceil(last - first, period) : 0) + of_mtp;
}

std::vector<int64_t> DecoderConfig::layers_with_experts() const {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < all_layers(); ++i)
        if (!layer(i).is_dense()) numbers.push_back(i);
    return numbers;
}

namespace {

// The fraction of a head that is nearest to a wrong one and rotates whole pairs.
double nearest_rope_fraction(const AttentionConfig& a) {
    const double pairs = std::round(double(a.head_dim) * std::min(a.rope_fraction, 1.0) / 2);
    const int64_t columns = std::max<int64_t>(2, 2 * int64_t(pairs));
    double fraction = double(columns) / double(a.head_dim);
    // the quotient may be a little too small
    while (int64_t(double(a.head_dim) * fraction) < columns) fraction = std::nextafter(fraction, 1.0);
    return fraction;
}

void require_rope_fits(const AttentionConfig& a) {
    if (a.rope_fraction == 1) return;
    if (a.is_latent())
        throw ConfigError(
            "model.partial_rotary_factor = {}: must be 1 with latent attention, in which RoPE rotates "
            "model.qk_rope_head_dim = {} columns of a head",
            a.rope_fraction, a.rope_dim);
    if (a.rope_fraction > 1)
        throw ConfigError("model.partial_rotary_factor = {}: must be at most 1, which is a whole head",
                          a.rope_fraction);
    const int64_t columns = a.rotated_dim();
    if (columns < 2 || columns % 2 != 0)
        throw ConfigError(
            "model.partial_rotary_factor = {}: RoPE would rotate {} of the {} columns of a head; the number "
            "must be even and at least 2 (nearest: {})",
            a.rope_fraction, columns, a.head_dim, nearest_rope_fraction(a));
}

void require_heads_fit(const AttentionConfig& a, int64_t dim) {
    if (a.head_dim < 1)
        throw ConfigError("model.n_heads = {}: must divide model.dim = {} (nearest: {})", a.heads, dim,
                          divisors_near(dim, a.heads));
    if (a.head_dim % 2 != 0)
        throw ConfigError("model.head_dim = {}: must be even, because RoPE rotates pairs (nearest: {})",
                          a.head_dim, a.head_dim + 1);
    require_rope_fits(a);
    if (a.is_latent() && a.kv_heads != a.heads)
        throw ConfigError("model.n_kv_heads = {}: must be model.n_heads = {} with latent attention",
                          a.kv_heads, a.heads);
    if (a.is_latent() && (a.qk_norm != QkNorm::none || a.bias != AttentionBias::none || a.sinks))
        throw ConfigError("model.kv_lora_rank = {}: latent attention has no norms of heads, biases or sinks",
                          a.kv_rank);
    if (a.is_latent() && (!a.rope || a.chunk > 0))
        throw ConfigError("model.kv_lora_rank = {}: latent attention has RoPE in all layers, and no chunks",
                          a.kv_rank);
    if (a.rope_dim % 2 != 0 || a.rope_dim >= a.head_dim)
        throw ConfigError(
            "model.qk_rope_head_dim = {}: must be even and less than model.head_dim = {} (nearest: {})",
            a.rope_dim, a.head_dim, std::min(a.rope_dim + a.rope_dim % 2, (a.head_dim - 1) / 2 * 2));
    if (!a.is_latent() && (a.q_rank > 0 || a.rope_dim > 0))
        throw ConfigError("model.{} = {}: needs latent attention (model.kv_lora_rank)",
                          a.q_rank > 0 ? "q_lora_rank" : "qk_rope_head_dim",
                          a.q_rank > 0 ? a.q_rank : a.rope_dim);
    if (a.heads % a.kv_heads != 0)
        throw ConfigError("model.n_kv_heads = {}: must divide model.n_heads = {} (nearest: {})", a.kv_heads,
                          a.heads, divisors_near(a.heads, a.kv_heads));
}

void require_experts_fit(const MoeConfig& m) {
    if (m.hidden < 1) throw ConfigError("model.moe.hidden = {}: must be at least 1", m.hidden);
    if (m.gate.scales_input && m.biases)
        throw ConfigError(
            "model.moe.score_before_experts = true: experts with biases do not have it; remove it");
    if (m.biases && !m.gate.interleaved)
        throw ConfigError(
            "moe.biases = true: experts have biases only if the rows of their gate and up projections take "
            "turns in one matrix (moe.gate_interleaved)");
    if (m.experts % m.groups != 0)
        throw ConfigError(
            "model.moe.num_expert_groups = {}: must divide model.moe.num_experts = {} (nearest: {})",
            m.groups, m.experts, divisors_near(m.experts, m.groups));
    const int64_t size = m.experts / m.groups;
    if (m.groups > 1 && (size < 2 || m.groups > 64))
        throw ConfigError(
            "model.moe.num_expert_groups = {}: there may be at most 64 groups, each of at least 2 experts, "
            "and there are {} experts (largest: {})",
            m.groups, m.experts, divisors_near(m.experts, std::min<int64_t>(64, m.experts / 2)));
    if (m.kept_groups > m.groups)
        throw ConfigError(
            "model.moe.num_limited_groups = {}: must be at most model.moe.num_expert_groups = {}",
            m.kept_groups, m.groups);
    if (m.top_k > size * m.kept_groups)
        throw ConfigError(
            "model.moe.top_k = {}: must be at most {}, the number of experts that may be chosen", m.top_k,
            size * m.kept_groups);
}

// Elements of the experts of a layer that are not shared, with their biases.
template <class Number>
Number expert_elements(const MoeConfig& m, int64_t dim) {
    const Number biases = m.biases ? 2 * Number(m.hidden) + Number(dim) : Number(0);
    return Number(m.experts) * (3 * Number(dim) * Number(m.hidden) + biases);
}

// Elements of the matrices of an attention layer.
template <class Number>
Number attention_elements(const AttentionConfig& a, int64_t dim) {
    const Number heads = Number(a.heads), d = Number(dim), value = Number(a.value_head_dim());
    if (!a.is_latent()) return d * (heads + Number(a.kv_heads)) * (Number(a.head_dim) + value);
    const Number rope = Number(a.rotated_dim()), queries = heads * Number(a.head_dim),
                 q_rank = Number(a.q_rank), kv_rank = Number(a.kv_rank);
    return (a.q_rank > 0 ? q_rank * (d + queries) : d * queries) + d * (kv_rank + rope) +
           kv_rank * heads * (Number(a.head_dim) - rope + value) + heads * value * d;
}

// Elements of the matrices of a layer. `Number`: double for an upper bound that cannot overflow.
template <class Number>
Number matrix_elements(const LayerConfig& layer, int64_t dim) {
    const Number others =
        3 * Number(layer.feed_forward.hidden + layer.moe.shared_hidden) + Number(layer.moe.experts);
    return attention_elements<Number>(layer.attention, dim) + Number(dim) * others +
           expert_elements<Number>(layer.moe, dim);
}

// Elements of the vectors of a layer, without the norms of its rows.
int64_t vector_elements(const LayerConfig& layer, int64_t dim) {
    const AttentionConfig& a = layer.attention;
    int64_t all = (a.sinks ? a.heads : 0) + a.q_rank + a.kv_rank;
    if (a.qk_norm == QkNorm::before_rope) all += 2 * a.head_dim;
    if (a.bias != AttentionBias::none) all += a.query_width() + a.key_width() + a.value_width();
    if (a.bias == AttentionBias::all) all += dim;
    if (layer.moe.router_bias) all += layer.moe.experts;
    return all;
}

}  // namespace

void DecoderConfig::validate() const {
    for_each_field(*this, [](const ConfigField& field, const auto& value) { require_valid(field, value); });
    double elements = 0;
    for (int64_t i = 0; i < layers; ++i) {
        const LayerConfig config = layer(i);
        require_heads_fit(config.attention, dim);
        if (!config.is_dense())
            require_experts_fit(config.moe);
        else if (feed_forward.hidden < 1)
            throw ConfigError("model.ffn_hidden = {}: must be at least 1", feed_forward.hidden);
        elements += matrix_elements<double>(config, dim);
    }
    if (elements > 1e15)
        throw ConfigError(
            "model: {:.1e} parameters are more than the maximum of 1e15; reduce model.dim, model.n_layers or "
            "model.ffn_hidden",
            elements);
}

int64_t DecoderConfig::parameters() const {
    const auto known = std::ranges::find(model_families(), family, &ModelFamily::name);
    if (known != model_families().end() && known->own_block)  // what it declares
        return Decoder(*this, {}, 1).parameters().count();
    const int64_t norm = norm_type == NormType::np_layer_norm ? 0 : dim;
    int64_t all = vocab * dim * (tied ? 1 : 2) + norm + mtp_layers * (2 * dim * dim + 3 * norm);
    for (int64_t i = 0; i < all_layers(); ++i) {
        const LayerConfig config = layer(i);
        all += matrix_elements<int64_t>(config, dim) + vector_elements(config, dim) + 2 * norm;
    }
    return all;
}

int64_t DecoderConfig::active_parameters() const {
    int64_t all = parameters();
    for (int64_t i = 0; i < all_layers(); ++i) {
        const MoeConfig m = layer(i).moe;
        if (m.experts == 0) continue;
        const int64_t of_experts = expert_elements<int64_t>(m, dim);
        all -= of_experts - of_experts * m.top_k / m.experts;
    }
    return all;
}

double DecoderConfig::score_flops_per_token(int64_t seq_len) const {
    int64_t widths = 0;
    for (int64_t i = 0; i < all_layers(); ++i) {
        const AttentionConfig a = layer(i).attention;
        widths += a.heads * (a.head_dim + a.value_head_dim());
    }
    return 6.0 * double(widths) * double(seq_len);
}

double DecoderConfig::flops_per_token(int64_t seq_len) const {
    const int64_t multiplied = active_parameters() + (mtp_layers - (tied ? 0 : 1)) * vocab * dim;
    return 6.0 * double(multiplied) + score_flops_per_token(seq_len);
}

int64_t FfnRule::width(int64_t dim) const {
    const int64_t quotient =
        8 * dim / 3;  // rounded down before the multiplication, as in the published widths
    return round_up(int64_t(multiplier * double(quotient)), multiple_of);
}

}  // namespace coeus
