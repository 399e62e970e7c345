// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/build_block.hpp"

#include "coeus/layers/attention.hpp"
#include "coeus/layers/feed_forward.hpp"
#include "coeus/layers/latent_attention.hpp"
#include "coeus/layers/moe.hpp"
#include "coeus/layers/mtp_layer.hpp"
#include "coeus/layers/recompute_block.hpp"
#include "coeus/models/precision_plan.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

// The role by which optimizers choose parameters.
ParamRole role_of(WeightRole role) {
    switch (role) {
        case WeightRole::embedding: return ParamRole::embedding;
        case WeightRole::output: return ParamRole::output;
        case WeightRole::norm: return ParamRole::norm;
        case WeightRole::attention_bias:
        case WeightRole::router_bias:
        case WeightRole::expert_bias:
        case WeightRole::balance:
        case WeightRole::sink: return ParamRole::bias;
        default: return ParamRole::matrix;
    }
}

}  // namespace

Param Declare::weight(const std::string& name, const Shape& shape, WeightRole role, Split split) const {
    return named(name + ".weight", shape, role, split);
}

Param Declare::named(const std::string& name, const Shape& shape, WeightRole role, Split split) const {
    return {.name = prefix_ + name,
            .shape = shape,
            .init = find_family(model_.family).init(role, std::min(layer_, model_.layers - 1), model_),
            .shard = {.tp = split},
            .role = role_of(role),
            .trainable = !parameters_.types().frozen.takes(prefix_ + name)};
}

Param Declare::linear(const std::string& name, const Shape& shape, WeightRole role, Split split) const {
    Param param = weight(name, shape, role, split);
    param.takes_recipe = param.sums_products = true;
    param.recipe = recipe_of_linear(parameters_.types().precision, param.name, shape.rows(), shape.cols());
    return param;
}

LinearWeight Declare::add_stack(std::vector<Param> params) const {
    std::vector<const Storage*> storages;
    for (size_t first = 0, end = 0; first < params.size(); first = end) {
        while (end < params.size() && params[end].recipe == params[first].recipe &&
               params[end].trainable == params[first].trainable)
            ++end;
        storages.push_back(
            &parameters_.add({params.begin() + int64_t(first), params.begin() + int64_t(end)}));
    }
    return storages;
}

std::unique_ptr<Norm> Declare::norm(const std::string& name, Output output) const {
    if (model_.norm_type == NormType::np_layer_norm)
        return std::make_unique<LayerNorm>(nullptr, model_.norm_eps, output);
    const Storage& stored = parameters_.add(weight(name, {model_.dim}, WeightRole::norm, Split::partial));
    if (model_.norm_type == NormType::layer_norm)
        return std::make_unique<LayerNorm>(&stored, model_.norm_eps, output);
    return std::make_unique<RmsNorm>(stored, model_.norm_eps, output);
}

PreNormBlock::Part build_part(const Declare& declare, const char* norm_name, Output output,
                              FunctionRef<std::unique_ptr<Sublayer>(LinearInput)> build) {
    PreNormBlock::Part part;
    part.norm = declare.norm(norm_name, output);
    part.sublayer = build(LinearInput(output, *part.norm));
    return part;
}

namespace {

// The output of an operation that these weights multiply. If all of them need it in 8 bits, they keep it
// instead of the operation.
Output output_for(const Declare& declare, const std::vector<Param>& weights, Output output) {
    const bool in_8_bits = std::ranges::all_of(
        weights, [](const Param& weight) { return forms_of(weight.recipe).x_of_wgrad.is_8_bit(); });
    if (output.place == Output::kept && in_8_bits) output.place = Output::kept_in_8_bits;
    for (const Param& weight : weights) {
        const RecipeForms forms = forms_of(weight.recipe);
        if (!forms.x.is_8_bit()) continue;
        output.of_product = forms.x.groups;
        output.of_gradient = forms.x_of_wgrad.groups;
        // a rank that has some columns of a row does not know its scale
        const bool has_whole_rows = weight.shard.tp != Split::cols || declare.parameters().place().tp == 1;
        if (output.of_product == ScaleGroups::rows && !has_whole_rows) output.of_product = ScaleGroups::none;
    }
    return output;
}

std::vector<Param> query_key_value(const Declare& declare, const AttentionConfig& a) {
    const auto in = [&](const char* name, int64_t rows) {
        return declare.linear(name, {rows, declare.model().dim}, WeightRole::attention_in, Split::rows);
    };
    return {in("attention.wq", a.query_width()), in("attention.wk", a.key_width()),
            in("attention.wv", a.value_width())};
}

// The matrices of latent attention that make latents.
std::vector<Param> down_projections(const Declare& declare, const AttentionConfig& a) {
    const auto down = [&](const char* name, int64_t rows) {
        return declare.linear(name, {rows, declare.model().dim}, WeightRole::attention_in, Split::partial);
    };
    std::vector<Param> all;
    if (a.q_rank > 0) all.push_back(down("attention.wq_a", a.q_rank));
    all.push_back(down("attention.wkv_a", a.kv_rank + a.rotated_dim()));
    return all;
}
Param query(const Declare& declare, const AttentionConfig& a) {
    const bool of_latents = a.q_rank > 0;
    return declare.linear(of_latents ? "attention.wq_b" : "attention.wq",
                          {a.query_width(), of_latents ? a.q_rank : declare.model().dim},
                          WeightRole::attention_in, Split::rows);
}

// The weights that multiply the input of attention.
std::vector<Param> first_weights(const Declare& declare, const AttentionConfig& a) {
    if (!a.is_latent()) return query_key_value(declare, a);
    std::vector<Param> all = down_projections(declare, a);
    if (a.q_rank == 0) all.push_back(query(declare, a));
    return all;
}

// How many adjacent columns of a layer's inner width stay on one tensor-parallel rank (Param::together): 16
// bytes in bfloat16, so that products find rows where their fastest kernels read them. Not if an equal part
// is so narrow that this would make a part much wider.
int64_t columns_together(int64_t width, int tp) {
    constexpr int64_t pack = 8, narrow = 16 * pack;
    return width / tp >= narrow ? pack : 1;
}

std::vector<Param> gate_and_up(const Declare& declare, int64_t hidden, const std::string& name) {
    const auto in = [&](const char* which, WeightRole role) {
        Param param = declare.linear(name + which, {hidden, declare.model().dim}, role, Split::rows);
        param.together = columns_together(hidden, declare.parameters().place().tp);
        return param;
    };
    return {in(".w1", WeightRole::gate), in(".w3", WeightRole::up)};
}

// The router needs its input in the compute type.
Output output_for(const Declare& declare, const LayerConfig& layer, Output output) {
    return layer.is_dense()
               ? output_for(declare, gate_and_up(declare, layer.feed_forward.hidden, "feed_forward"), output)
               : output;
}

}  // namespace

namespace {

// The biases of queries, keys and values, stacked like their matrices; null if there are none.
const Storage* input_bias(const Declare& declare, const AttentionConfig& a) {
    if (a.bias == AttentionBias::none) return nullptr;
    const auto bias = [&](const char* name, int64_t rows) {
        return declare.named(name, {rows}, WeightRole::attention_bias, Split::rows);
    };
    return &declare.parameters().add({bias("attention.wq.bias", a.query_width()),
                                      bias("attention.wk.bias", a.key_width()),
                                      bias("attention.wv.bias", a.value_width())});
}

const Storage* output_bias(const Declare& declare, const AttentionConfig& a) {
    if (a.bias != AttentionBias::all) return nullptr;
    return &declare.parameters().add(declare.named("attention.wo.bias", {declare.model().dim},
                                                   WeightRole::attention_bias, Split::partial));
}

const Storage* sinks(const Declare& declare, const AttentionConfig& a) {
    if (!a.sinks) return nullptr;
    return &declare.parameters().add(
        declare.named("attention.sinks", {a.heads}, WeightRole::sink, Split::rows));
}

HeadSteps::List head_steps(const Declare& declare, const AttentionConfig& a, const PositionTables& tables) {
    HeadSteps::List steps;
    const int64_t heads = a.heads / declare.parameters().place().tp;
    const double eps = declare.model().norm_eps;
    if (a.qk_norm == QkNorm::before_rope) {
        const auto weight = [&](const char* name) {
            return &declare.parameters().add(
                declare.weight(name, {a.head_dim}, WeightRole::norm, Split::partial));
        };
        const Storage *q = weight("attention.q_norm"), *k = weight("attention.k_norm");
        steps.push_back(std::make_unique<NormHeads>(q, k, heads, a.head_dim, eps));
    }
    if (a.rope)
        steps.push_back(std::make_unique<RotateHeads>(
            tables.rope,
            RopeShape{
                .head_dim = a.head_dim, .width = a.rotated_dim(), .layout = declare.model().rope.layout}));
    if (a.qk_norm == QkNorm::after_rope)
        steps.push_back(std::make_unique<NormHeads>(nullptr, nullptr, heads, a.head_dim, eps));
    if (a.temperature)
        steps.push_back(std::make_unique<ScaleQueries>(tables.temperature, heads * a.head_dim));
    return steps;
}

}  // namespace

namespace {

// YaRN with latent attention multiplies the scores (DeepSeek-V3's published code).
double latent_scale(const DecoderConfig& model) {
    const auto* yarn = std::get_if<YarnScaling>(&model.rope.scaling);
    const double m = yarn && yarn->mscale_all_dim > 0 ? yarn->magnitude(yarn->mscale_all_dim) : 1;
    return m * m / std::sqrt(double(model.attention.head_dim));
}

std::unique_ptr<Sublayer> build_latent_attention(const Declare& declare, const AttentionConfig& a,
                                                 const RopeTable& rope, LinearInput input) {
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
                               .norm_eps = a.latent_norm_eps,
                               .scale = latent_scale(declare.model()),
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
        rope, heads);
}

}  // namespace

std::unique_ptr<Sublayer> build_attention(const Declare& declare, const AttentionConfig& config,
                                          const PositionTables& tables, LinearInput input) {
    const AttentionConfig& a = config;
    if (a.is_latent()) return build_latent_attention(declare, a, tables.rope, input);
    const int64_t dim = declare.model().dim;
    Parameters& parameters = declare.parameters();
    const LinearWeight wqkv = declare.add_stack(query_key_value(declare, a));
    const Storage& wo = parameters.add(
        declare.linear("attention.wo", {dim, a.output_width()}, WeightRole::attention_out, Split::cols));
    const Storage *qkv_bias = input_bias(declare, a), *wo_bias = output_bias(declare, a);
    HeadSteps::List steps = head_steps(declare, a, tables);
    const int tp = parameters.place().tp;
    const AttentionHeads heads = {.heads = a.heads / tp,
                                  .kv_heads = a.kv_heads / tp,
                                  .head_dim = a.head_dim,
                                  .value_dim = a.value_dim,
                                  .window = a.window,
                                  .chunk = a.chunk,
                                  .layer = declare.layer()};
    return std::make_unique<Attention>(ColLinear(wqkv, input, qkv_bias), RowLinear(wo, {}, wo_bias), heads,
                                       std::move(steps), sinks(declare, a));
}

std::unique_ptr<Sublayer> build_feed_forward(const Declare& declare, const FeedForwardConfig& config,
                                             LinearInput input, Output activated, const std::string& name) {
    const LinearWeight w13 = declare.add_stack(gate_and_up(declare, config.hidden, name));
    Param down =
        declare.linear(name + ".w2", {declare.model().dim, config.hidden}, WeightRole::down, Split::cols);
    down.together = columns_together(config.hidden, declare.parameters().place().tp);
    const Storage& w2 = declare.parameters().add(down);
    return std::make_unique<FeedForward>(w13, w2, input, output_for(declare, {down}, activated));
}

namespace {

// The weights of all experts of a layer.
ExpertWeights expert_weights(const Declare& declare, const MoeConfig& m) {
    const int64_t dim = declare.model().dim;
    Parameters& parameters = declare.parameters();
    const int64_t together = columns_together(m.hidden, parameters.expert_place().tp);
    const auto matrices = [&](const char* name, int64_t rows, int64_t cols, WeightRole role, Split split) {
        Param param = declare.named(name, {m.experts, rows, cols}, role, split);
        param.together = together;
        param.groups = m.experts;
        param.takes_recipe = param.sums_products = true;
        param.recipe = recipe_of_experts(parameters.types().precision, param.name, rows, cols);
        param.shard.sharding = parameters.expert_sharding();
        return param;
    };
    // Biases are in the dense sharding, so each rank has those of all experts. If the ranks that divide the
    // others' matrices do not divide an expert, each of them has its own rows, and adds to the same biases.
    const bool divided = parameters.place().tp == 1 || parameters.expert_place().tp > 1;
    const Split of_first = divided ? Split::cols : Split::partial;
    const auto vectors = [&](const char* name, int64_t cols, Split split) {
        return declare.named(name, {m.experts, cols}, WeightRole::expert_bias, split);
    };
    ExpertWeights weights = {
        .first = parameters.expert_place().ep_rank * (m.experts / parameters.expert_place().ep),
        .count = m.experts / parameters.expert_place().ep};
    if (m.gate.interleaved) {
        const auto in_turn = [together](Param param) {
            param.together = 2 * together;
            return param;
        };
        weights.w13 = &parameters.add(
            in_turn(matrices("moe.experts.mlp1_weight", 2 * m.hidden, dim, WeightRole::gate, Split::rows)));
        if (m.biases)
            weights.b13 = &parameters.add(in_turn(vectors("moe.experts.mlp1_bias", 2 * m.hidden, of_first)));
        weights.w2 = &parameters.add(
            matrices("moe.experts.mlp2_weight", dim, m.hidden, WeightRole::down, Split::cols));
        if (m.biases) weights.b2 = &parameters.add(vectors("moe.experts.mlp2_bias", dim, Split::partial));
        return weights;
    }
    weights.w13 = &parameters.add({matrices("moe.experts.w1", m.hidden, dim, WeightRole::gate, Split::rows),
                                   matrices("moe.experts.w3", m.hidden, dim, WeightRole::up, Split::rows)});
    weights.w2 = &parameters.add(matrices("moe.experts.w2", dim, m.hidden, WeightRole::down, Split::cols));
    return weights;
}

// The biases that balance the loads; null if there are none.
const Storage* balance_biases(const Declare& declare, const MoeConfig& m) {
    if (!m.has_balance_bias()) return nullptr;
    Param bias = declare.named("moe.expert_bias", {m.experts}, WeightRole::balance, Split::none);
    bias.shard.sharding = declare.parameters().whole_sharding();
    bias.trainable = false;
    bias.is_exact = true;
    return &declare.parameters().add(std::move(bias));
}

}  // namespace

std::unique_ptr<Sublayer> build_moe(const Declare& declare, const MoeConfig& config, LinearInput input,
                                    Output activated) {
    const MoeConfig& m = config;
    Parameters& parameters = declare.parameters();
    Param gate = declare.weight("moe.router.gate", {m.experts, declare.model().dim}, WeightRole::router,
                                Split::partial);
    gate.sums_products = true;
    const Storage& router = parameters.add(std::move(gate));
    const Storage* router_bias = m.router_bias
                                     ? &parameters.add(declare.named("moe.router.gate.bias", {m.experts},
                                                                     WeightRole::router_bias, Split::partial))
                                     : nullptr;
    const Storage* balance = balance_biases(declare, m);
    const ExpertProducts products(expert_weights(declare, m), m.gate);
    std::unique_ptr<Sublayer> shared;
    if (m.shared_hidden > 0)
        shared =
            build_feed_forward(declare, {.hidden = m.shared_hidden}, input, activated, "moe.shared_experts");
    const RouteOptions route = {.top_k = m.top_k,
                                .groups = m.groups,
                                .kept_groups = m.kept_groups,
                                .sigmoid = m.score == ScoreFunction::sigmoid,
                                .normalise = m.normalise,
                                .scale = m.scale,
                                .round_robin = m.round_robin};
    return std::make_unique<Moe>(
        Router(TokenLinear(router, input, router_bias), balance, route,
               declare.model().moe_row(declare.layer()), {m.sequence_balance, decoder_loss::balance}),
        parameters.expert_place().ep > 1 ? divided_experts(products) : local_experts(products),
        std::move(shared));
}

namespace {

std::unique_ptr<Block> usual_block(const Declare& declare, const PositionTables& tables, Output output) {
    const LayerConfig layer = declare.model().layer(declare.layer());
    std::vector<PreNormBlock::Part> parts;
    const Output to_attention = output_for(declare, first_weights(declare, layer.attention), output);
    parts.push_back(build_part(declare, "attention_norm", to_attention, [&](LinearInput input) {
        return build_attention(declare, layer.attention, tables, input);
    }));
    parts.push_back(
        build_part(declare, "ffn_norm", output_for(declare, layer, output), [&](LinearInput input) {
            return layer.is_dense() ? build_feed_forward(declare, layer.feed_forward, input, output)
                                    : build_moe(declare, layer.moe, input, output);
        }));
    return std::make_unique<PreNormBlock>(std::move(parts));
}

Output output_of(Recompute recompute) {
    return recompute == Recompute::operations ? Output::recomputed : Output::kept;
}

std::unique_ptr<Block> build(const Declare& declare, const PositionTables& tables, Recompute recompute) {
    const auto own = find_family(declare.model().family).own_block;
    std::unique_ptr<Block> block = (own ? own : usual_block)(declare, tables, output_of(recompute));
    if (recompute == Recompute::block) return std::make_unique<RecomputeBlock>(std::move(block));
    return block;
}

}  // namespace

std::unique_ptr<Block> build_block(Parameters& parameters, const DecoderConfig& model, int64_t number,
                                   const PositionTables& tables, Recompute recompute) {
    return build({parameters, model, fmt::format("layers.{}.", number), number}, tables, recompute);
}

std::unique_ptr<Block> build_mtp_layer(Parameters& parameters, const DecoderConfig& model, int64_t depth,
                                       const PositionTables& tables, Recompute recompute) {
    const Declare declare(parameters, model, fmt::format("mtp_layers.{}.", depth), model.layers + depth);
    const Output output = output_of(recompute);
    std::unique_ptr<Norm> enorm = declare.norm("enorm", output), hnorm = declare.norm("hnorm", output);
    const Storage& joint = parameters.add(
        declare.weight("eh_proj", {model.dim, 2 * model.dim}, WeightRole::joint, Split::partial));
    const auto columns = [&](int64_t first, const Norm& norm) {
        return TokenLinear(joint, first, model.dim, LinearInput(output, norm));
    };
    const TokenLinear of_embedding = columns(0, *enorm), of_hidden = columns(model.dim, *hnorm);
    std::unique_ptr<Block> block = build(declare, tables, recompute);
    return std::make_unique<MtpLayer>(MtpLayer::Parts{.enorm = std::move(enorm),
                                                      .hnorm = std::move(hnorm),
                                                      .of_embedding = of_embedding,
                                                      .of_hidden = of_hidden,
                                                      .block = std::move(block),
                                                      .norm = declare.norm("mtp_norm", Output::kept)});
}

}  // namespace coeus
