// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/parts/latent_attention.hpp"

#include "coeus/base/error.hpp"
#include "coeus/layers/latent_attention.hpp"
#include "coeus/models/declare.hpp"
#include "coeus/models/hub_names.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace coeus {

void require_valid(const LatentAttentionConfig& a, int64_t dim) {
    if (a.other_kv_heads)
        throw ConfigError("model.n_kv_heads = {}: must be model.n_heads = {} with latent attention",
                          *a.other_kv_heads, a.heads);
    require_heads_fit(a.sizes(), dim);
    if (a.rope_dim % 2 != 0 || a.rope_dim >= a.head_dim)
        throw ConfigError(
            "model.qk_rope_head_dim = {}: must be even and less than model.head_dim = {} (nearest: {})",
            a.rope_dim, a.head_dim, std::min(a.rope_dim + a.rope_dim % 2, (a.head_dim - 1) / 2 * 2));
}

namespace {

// The matrices of latent attention that make latents.
std::vector<Param> down_projections(const Declare& declare, const LatentAttentionConfig& a) {
    const auto down = [&](const char* name, int64_t rows) {
        return declare.linear(name, {rows, declare.model().dim}, WeightRole::attention_in, Split::partial);
    };
    std::vector<Param> all;
    if (a.q_rank > 0) all.push_back(down("attention.wq_a", a.q_rank));
    all.push_back(down("attention.wkv_a", a.kv_rank + a.rotated_dim()));
    return all;
}
Param query(const Declare& declare, const LatentAttentionConfig& a) {
    const bool of_latents = a.q_rank > 0;
    return declare.linear(of_latents ? "attention.wq_b" : "attention.wq",
                          {a.query_width(), of_latents ? a.q_rank : declare.model().dim},
                          WeightRole::attention_in, Split::rows);
}

}  // namespace

std::vector<Param> first_weights(const Declare& declare, const LatentAttentionConfig& a) {
    std::vector<Param> all = down_projections(declare, a);
    if (a.q_rank == 0) all.push_back(query(declare, a));
    return all;
}

namespace {

// YaRN with latent attention multiplies the scores (DeepSeek-V3's published code).
double score_scale(const LatentAttentionConfig& a, const RopeConfig& rope) {
    const auto* yarn = std::get_if<YarnScaling>(&rope.scaling);
    const double m = yarn && yarn->mscale_all_dim > 0 ? yarn->magnitude(yarn->mscale_all_dim) : 1;
    return m * m / std::sqrt(double(a.head_dim));
}

}  // namespace

std::unique_ptr<Sublayer> build_attention(const Declare& declare, const LatentAttentionConfig& a,
                                          const PositionTables& tables, LinearInput input) {
    const int64_t dim = declare.model().dim, rope_dim = a.rotated_dim(), nope = a.head_dim - rope_dim;
    Parameters& parameters = declare.parameters();
    const auto norm = [&](const char* name, int64_t width) {
        return &parameters.add(declare.weight(name, {width}, WeightRole::norm, Split::partial));
    };
    const bool has_q_latents = a.q_rank > 0;
    const LinearWeight first = declare.add_stack(down_projections(declare, a));
    const Storage* q_norm = has_q_latents ? norm("attention.q_norm", a.q_rank) : nullptr;
    const Storage& wq = parameters.add(query(declare, a));
    const Storage* kv_norm = norm("attention.kv_norm", a.kv_rank);
    const Storage& wkv =
        parameters.add(declare.linear("attention.wkv_b", {a.heads * (nope + a.value_head_dim()), a.kv_rank},
                                      WeightRole::attention_in, Split::rows));
    const Storage& wo = parameters.add(
        declare.linear("attention.wo", {dim, a.output_width()}, WeightRole::attention_out, Split::cols));
    const LatentHeads heads = {.shape = {.heads = a.heads / parameters.place().tp,
                                         .nope = nope,
                                         .rope = rope_dim,
                                         .value = a.value_head_dim()},
                               .q_rank = a.q_rank,
                               .kv_rank = a.kv_rank,
                               .norm = {a.latent_norm_eps, declare.norm_form().offset},
                               .scale = score_scale(a, declare.model().rope),
                               .layout = declare.model().rope.layout,
                               .window = a.window,
                               .layer = declare.layer()};
    return std::make_unique<LatentAttention>(
        LatentAttention::Weights{.down = TokenLinear(first, input),
                                 .q_norm = q_norm,
                                 .kv_norm = kv_norm,
                                 .q = has_q_latents ? ColLinear(wq) : ColLinear(wq, input),
                                 .kv = ColLinear(wkv),
                                 .wo = RowLinear(wo)},
        tables.ropes.front(), heads);
}

namespace {

constexpr std::array names_of_latent = {
    HubName{"attention.wq_a.weight", "self_attn.q_a_proj.weight"},
    HubName{"attention.q_norm.weight", "self_attn.q_a_layernorm.weight"},
    HubName{"attention.wq_b.weight", "self_attn.q_b_proj.weight"},
    HubName{"attention.wq.weight", "self_attn.q_proj.weight"},
    HubName{"attention.wkv_a.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    HubName{"attention.kv_norm.weight", "self_attn.kv_a_layernorm.weight"},
    HubName{"attention.wkv_b.weight", "self_attn.kv_b_proj.weight"},
    HubName{"attention.wo.weight", "self_attn.o_proj.weight"}};

}  // namespace

std::span<const HubName> latent_attention_hub_names() {
    return names_of_latent;
}

}  // namespace coeus
