// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/parts/grouped_attention.hpp"

#include "coeus/base/error.hpp"
#include "coeus/layers/attention.hpp"
#include "coeus/models/declare.hpp"
#include "coeus/models/hub_names.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace coeus {

namespace {

// The fraction of a head that is nearest to a wrong one and rotates whole pairs.
double nearest_rope_fraction(const GroupedAttentionConfig& a) {
    const double pairs = std::round(double(a.head_dim) * std::min(a.rope_fraction, 1.0) / 2);
    const int64_t columns = std::max<int64_t>(2, 2 * int64_t(pairs));
    double fraction = double(columns) / double(a.head_dim);
    // the quotient may be a little too small
    while (int64_t(double(a.head_dim) * fraction) < columns) fraction = std::nextafter(fraction, 1.0);
    return fraction;
}

void require_rope_fits(const GroupedAttentionConfig& a) {
    if (a.rope_fraction == 1) return;
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

}  // namespace

void require_valid(const GroupedAttentionConfig& a, int64_t dim) {
    require_heads_fit(a.sizes(), dim);
    require_rope_fits(a);
    if (a.heads % a.kv_heads != 0)
        throw ConfigError("model.n_kv_heads = {}: must divide model.n_heads = {} (nearest: {})", a.kv_heads,
                          a.heads, divisors_near(a.heads, a.kv_heads, a.heads));
}

std::vector<Param> first_weights(const Declare& declare, const GroupedAttentionConfig& a) {
    const auto in = [&](const char* name, int64_t rows) {
        return declare.linear(name, {rows, declare.model().dim}, WeightRole::attention_in, Split::rows);
    };
    return {in("attention.wq", a.query_width()), in("attention.wk", a.key_width()),
            in("attention.wv", a.value_width())};
}

namespace {

// The biases of queries, keys and values, stacked like their matrices; null if there are none.
const Storage* input_bias(const Declare& declare, const GroupedAttentionConfig& a) {
    if (a.bias == AttentionBias::none || a.bias == AttentionBias::out) return nullptr;
    const auto bias = [&](const char* name, int64_t rows) {
        return declare.named(name, {rows}, WeightRole::attention_bias, Split::rows);
    };
    return &declare.parameters().add({bias("attention.wq.bias", a.query_width()),
                                      bias("attention.wk.bias", a.key_width()),
                                      bias("attention.wv.bias", a.value_width())});
}

const Storage* output_bias(const Declare& declare, const GroupedAttentionConfig& a) {
    if (a.bias != AttentionBias::all && a.bias != AttentionBias::out) return nullptr;
    return &declare.parameters().add(declare.named("attention.wo.bias", {declare.model().dim},
                                                   WeightRole::attention_bias, Split::partial));
}

const Storage* sinks(const Declare& declare, const GroupedAttentionConfig& a) {
    if (!a.sinks) return nullptr;
    return &declare.parameters().add(
        declare.named("attention.sinks", {a.heads}, WeightRole::sink, Split::rows));
}

// The norms of queries and keys. Ranks divide the weights only if these are of all heads.
std::unique_ptr<HeadStep> norm_step(const Declare& declare, const GroupedAttentionConfig& a, int64_t heads) {
    const NormForm form = declare.norm_form();
    if (a.qk_norm == QkNorm::after_rope)
        return std::make_unique<NormHeads>(nullptr, nullptr, heads, a.head_dim, form);
    const bool of_all = a.qk_norm == QkNorm::all_heads;
    const auto weight = [&](const char* name, int64_t columns) {
        return &declare.parameters().add(declare.weight(
            name, {of_all ? columns : a.head_dim}, WeightRole::norm, of_all ? Split::rows : Split::partial));
    };
    const Storage *q = weight("attention.q_norm", a.query_width()),
                  *k = weight("attention.k_norm", a.key_width());
    if (of_all) return std::make_unique<NormAllHeads>(*q, *k, form);
    return std::make_unique<NormHeads>(q, k, heads, a.head_dim, form);
}

HeadSteps::List head_steps(const Declare& declare, const GroupedAttentionConfig& a,
                           const PositionTables& tables) {
    HeadSteps::List steps;
    const int64_t heads = a.heads / declare.parameters().place().tp;
    const bool norms_last = a.qk_norm == QkNorm::after_rope || a.qk_norm == QkNorm::weighted_after_rope;
    if (a.qk_norm != QkNorm::none && !norms_last) steps.push_back(norm_step(declare, a, heads));
    if (a.rope)
        steps.push_back(std::make_unique<RotateHeads>(
            tables.ropes.at(a.rope_table),
            RopeShape{
                .head_dim = a.head_dim, .width = a.rotated_dim(), .layout = declare.model().rope.layout}));
    if (norms_last) steps.push_back(norm_step(declare, a, heads));
    if (a.temperature)
        steps.push_back(std::make_unique<ScaleQueries>(tables.temperature, heads * a.head_dim));
    return steps;
}

}  // namespace

std::unique_ptr<Sublayer> build_attention(const Declare& declare, const GroupedAttentionConfig& a,
                                          const PositionTables& tables, LinearInput input) {
    const int64_t dim = declare.model().dim;
    Parameters& parameters = declare.parameters();
    const LinearWeight wqkv = declare.add_stack(first_weights(declare, a));
    const Storage& wo = parameters.add(
        declare.linear("attention.wo", {dim, a.output_width()}, WeightRole::attention_out, Split::cols));
    const Storage *qkv_bias = input_bias(declare, a), *wo_bias = output_bias(declare, a);
    HeadSteps::List steps = head_steps(declare, a, tables);
    const int tp = parameters.place().tp;
    const AttentionHeads heads = {.heads = a.heads / tp,
                                  .kv_heads = a.kv_heads / tp,
                                  .head_dim = a.head_dim,
                                  .value_dim = a.value_dim,
                                  .scale = a.scale,
                                  .window = a.window,
                                  .chunk = a.chunk,
                                  .layer = declare.layer()};
    return std::make_unique<Attention>(ColLinear(wqkv, input, qkv_bias), RowLinear(wo, {}, wo_bias), heads,
                                       std::move(steps), sinks(declare, a));
}

namespace {

constexpr std::array names_of_grouped = {HubName{"attention.wq.weight", "self_attn.q_proj.weight"},
                                         HubName{"attention.wk.weight", "self_attn.k_proj.weight"},
                                         HubName{"attention.wv.weight", "self_attn.v_proj.weight"},
                                         HubName{"attention.wo.weight", "self_attn.o_proj.weight"},
                                         HubName{"attention.wq.bias", "self_attn.q_proj.bias"},
                                         HubName{"attention.wk.bias", "self_attn.k_proj.bias"},
                                         HubName{"attention.wv.bias", "self_attn.v_proj.bias"},
                                         HubName{"attention.wo.bias", "self_attn.o_proj.bias"},
                                         HubName{"attention.q_norm.weight", "self_attn.q_norm.weight"},
                                         HubName{"attention.k_norm.weight", "self_attn.k_norm.weight"},
                                         HubName{"attention.sinks", "self_attn.sinks"}};

}  // namespace

std::span<const HubName> grouped_attention_hub_names() {
    return names_of_grouped;
}

}  // namespace coeus
