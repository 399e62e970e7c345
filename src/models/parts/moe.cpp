// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/parts/moe.hpp"

#include "coeus/base/error.hpp"
#include "coeus/layers/moe.hpp"
#include "coeus/models/declare.hpp"
#include "coeus/models/hub_names.hpp"
#include "coeus/models/model.hpp"
#include "coeus/models/parts/feed_forward.hpp"
#include "coeus/models/precision_plan.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace coeus {

void require_valid(const MoeConfig& m) {
    if (m.hidden < 1) throw ConfigError("model.moe.hidden = {}: must be at least 1", m.hidden);
    if (m.shared_gate && m.shared_hidden == 0)
        throw ConfigError(
            "model.moe.shared_gate = true: there are no shared experts, which it is for; set "
            "model.moe.num_shared_experts = 1 too");
    if (m.gate.activation != Activation::silu && m.gate.alpha != 1)
        throw ConfigError("moe.gate_alpha = {}: only moe.activation = \"silu\" has it; others need 1",
                          m.gate.alpha);
    if (m.gate.scales_input && m.biases)
        throw ConfigError(
            "model.moe.score_before_experts = true: experts with biases do not have it; remove it");
    if (m.biases && !m.gate.interleaved)
        throw ConfigError(
            "moe.biases = true: experts have biases only if the rows of their gate and up projections take "
            "turns in one matrix (moe.gate_interleaved)");
    const int64_t most_groups = std::clamp<int64_t>(m.experts / 2, 1, 64);
    if (m.experts % m.groups != 0)
        throw ConfigError(
            "model.moe.num_expert_groups = {}: must divide model.moe.num_experts = {} (nearest: {})",
            m.groups, m.experts, divisors_near(m.experts, m.groups, most_groups));
    if (m.groups > most_groups)
        throw ConfigError(
            "model.moe.num_expert_groups = {}: there may be at most 64 groups, each of at least 2 experts, "
            "and there are {} experts (largest: {})",
            m.groups, m.experts, divisors_near(m.experts, most_groups, most_groups));
    const int64_t size = m.experts / m.groups;
    if (m.kept_groups > m.groups)
        throw ConfigError(
            "model.moe.num_limited_groups = {}: must be at most model.moe.num_expert_groups = {}",
            m.kept_groups, m.groups);
    if (m.top_k > size * m.kept_groups)
        throw ConfigError(
            "model.moe.top_k = {}: must be at most {}, the number of experts that may be chosen", m.top_k,
            size * m.kept_groups);
}

// The router needs its input in the compute type.
Output input_form(const Declare&, const MoeConfig&, Output output) {
    return output;
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
        param.groups = param.choices = m.experts;
        param.chosen = m.top_k;
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
        Param param = declare.named(name, {m.experts, cols}, WeightRole::expert_bias, split);
        param.choices = m.experts;
        param.chosen = m.top_k;
        return param;
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
const Storage* balance_bias(const Declare& declare, const MoeConfig& m) {
    if (!m.has_balance_bias()) return nullptr;
    Param bias = declare.named("moe.expert_bias", {m.experts}, WeightRole::balance, Split::none);
    bias.shard.sharding = declare.parameters().whole_sharding();
    bias.trainable = false;
    bias.is_exact = true;
    const Storage& storage = declare.parameters().add(std::move(bias));
    declare.record({&storage, declare.model().moe_row(declare.layer())});
    return &storage;
}

}  // namespace

std::unique_ptr<Sublayer> build_moe(const Declare& declare, const MoeConfig& m, LinearInput input,
                                    Output activated) {
    Parameters& parameters = declare.parameters();
    Param gate = declare.weight("moe.router.gate", {m.experts, declare.model().dim}, WeightRole::router,
                                Split::partial);
    gate.sums_products = true;
    const Storage& router = parameters.add(std::move(gate));
    const Storage* router_bias = m.router_bias
                                     ? &parameters.add(declare.named("moe.router.gate.bias", {m.experts},
                                                                     WeightRole::router_bias, Split::partial))
                                     : nullptr;
    const Storage* balance = balance_bias(declare, m);
    const ExpertProducts products(expert_weights(declare, m), m.gate);
    std::unique_ptr<Sublayer> shared;
    const FeedForwardConfig of_shared = {.hidden = m.shared_hidden, .activation = m.gate.activation};
    if (m.shared_gate)
        shared = build_gated_shared_expert(declare, of_shared, input, activated, "moe.shared_experts",
                                           "moe.shared_gate");
    else if (m.shared_hidden > 0)
        shared = build_feed_forward(declare, of_shared, input, activated, "moe.shared_experts");
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

void add_losses(const MoeConfig& m, std::vector<PartOfLoss>& losses) {
    if (!m.has_own_loss()) return;
    losses.push_back({.number = decoder_loss::balance,
                      .topic = "moe",
                      .name = "sequence_balance_loss",
                      .terms = PartOfLoss::Terms::of_own_tokens});
}

void balance_experts(Exec& exec, const Kernels& kernels, const MoeConfig& m,
                     std::span<const BalanceBias> biases, Tensor counts, const StepScalars& scalars) {
    if (m.balance_rate <= 0) return;
    for (const BalanceBias& bias : biases)
        kernels.balance_experts(exec, bias.storage->master,
                                counts.slice_rows(bias.row, 1).reshape({counts.cols()}), m.balance_rate,
                                scalars);
}

namespace {

constexpr std::array names_of_moe = {
    HubName{"moe.router.gate.weight", "mlp.gate.weight"},
    HubName{"moe.shared_gate.weight", "mlp.shared_expert_gate.weight"},
    HubName{"moe.shared_experts.w1.weight", "mlp.shared_experts.gate_proj.weight"},
    HubName{"moe.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"},
    HubName{"moe.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight"}};

}  // namespace

std::span<const HubName> moe_hub_names() {
    return names_of_moe;
}

std::optional<std::vector<HubPlace>> usual_expert_places(const std::string& parameter, const Shape& shape,
                                                         const ExpertNames& names) {
    std::vector<HubPlace> places;
    if (parameter.ends_with(".moe.expert_bias")) return places;
    const std::string experts = ".moe.experts.";
    const size_t at = parameter.find(experts);
    if (at == std::string::npos) return std::nullopt;
    const std::string_view matrix = std::string_view(parameter).substr(at + experts.size());
    const char* name = matrix == "w1"   ? names.w1
                       : matrix == "w2" ? names.w2
                       : matrix == "w3" ? names.w3
                                        : nullptr;
    if (!name) throw LogicError("no Hugging Face name for " + parameter);
    const Shape of_one = {shape[1], shape[2]};
    for (int64_t e = 0; e < shape[0]; ++e) {
        places.push_back(HubPlace::whole(
            fmt::format("model.{}.{}.{}.{}.weight", parameter.substr(0, at), names.experts, e, name),
            of_one));
        places.back().first_row = e * of_one.rows();
    }
    return places;
}

}  // namespace coeus
