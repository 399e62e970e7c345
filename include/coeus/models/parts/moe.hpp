// SPDX-License-Identifier: Apache-2.0
// A mixture of experts as a part of a model, in the place of a feed-forward layer: its fields, and what
// builds the layer (layers/moe.hpp).
#pragma once

#include "coeus/file/hub_place.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/routing.hpp"
#include "coeus/models/config_field.hpp"

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coeus {

class Declare;
class LinearInput;
class Storage;
class Sublayer;
struct HubName;
struct Output;
struct PartOfLoss;

/// How a router makes scores of its logits.
enum class ScoreFunction : uint8_t { softmax, sigmoid };

constexpr auto names_of(ScoreFunction) {
    return std::array{EnumName<ScoreFunction>{"softmax", ScoreFunction::softmax},
                      EnumName<ScoreFunction>{"sigmoid", ScoreFunction::sigmoid}};
}

/// See RouteOptions for the router's options.
struct MoeConfig {
    int64_t experts = 0;  ///< 0: the model has none
    int64_t top_k = 1;
    int64_t hidden = 0;         ///< width of an expert between its matrices
    int64_t shared_hidden = 0;  ///< width of the shared experts, which are one layer; 0: none
    bool shared_gate = false;   ///< each token multiplies their result by the sigmoid of a product with it
    ScoreFunction score = ScoreFunction::softmax;
    bool normalise = false;
    double scale = 1;
    int64_t groups = 1, kept_groups = 1;
    bool router_bias = false;  ///< the logits have a bias
    bool biases = false;       ///< both matrices of an expert have biases (gpt-oss); needs gate.interleaved
    /// The activation function, also that of shared experts; whether the weight of a token multiplies the
    /// expert's input (Llama 4) or its result; and `interleaved`, whether the rows of an expert's gate and up
    /// projections take turns in one matrix (gpt-oss) or are two.
    Gate gate;
    /// The amount by which each step changes the biases that balance the loads (Wang et al. 2024).
    double balance_rate = 0;
    bool keeps_bias = false;  ///< these biases are there even if the rate is 0, and then stay as they are
    /// Coefficient of the loss that balances the experts within each sequence (DeepSeek-V3, eq. 17); 0: none.
    double sequence_balance = 0;
    bool round_robin = false;  ///< debug.moe_force_load_balance; not a field of the model

    bool has_own_loss() const { return sequence_balance > 0; }
    bool has_balance_bias() const { return balance_rate > 0 || keeps_bias; }
    bool operator==(const MoeConfig&) const = default;
};

template <class Visit>
void for_each_field(ConfigOf<MoeConfig> auto& m, Visit&& visit) {
    using enum FieldKind;
    visit(ConfigField{.name = "moe.num_experts", .is_later = true, .least = 0, .most = 1 << 16}, m.experts);
    visit(ConfigField{.name = "moe.top_k", .kind = constant, .is_later = true}, m.top_k);
    visit(ConfigField{.name = "moe.hidden", .is_later = true, .least = 0}, m.hidden);
    visit(ConfigField{.name = "moe.shared_hidden", .is_later = true, .least = 0}, m.shared_hidden);
    visit(ConfigField{.name = "moe.shared_gate", .is_later = true}, m.shared_gate);
    visit(ConfigField{.name = "moe.score_func", .kind = constant, .is_later = true}, m.score);
    visit(ConfigField{.name = "moe.route_norm", .kind = constant, .is_later = true}, m.normalise);
    visit(ConfigField{.name = "moe.route_scale", .kind = constant, .is_later = true, .usual = "1"}, m.scale);
    visit(ConfigField{.name = "moe.num_expert_groups", .kind = constant, .is_later = true}, m.groups);
    visit(ConfigField{.name = "moe.num_limited_groups", .kind = constant, .is_later = true}, m.kept_groups);
    visit(ConfigField{.name = "moe.gate_bias", .is_later = true}, m.router_bias);
    visit(ConfigField{.name = "moe.biases", .is_later = true}, m.biases);
    visit(ConfigField{.name = "moe.activation", .kind = constant, .is_later = true}, m.gate.activation);
    // described only if it differs from moe.biases, which stood for both at first
    visit(ConfigField{.name = "moe.gate_interleaved", .is_later = true}, m.gate.interleaved);
    visit(
        ConfigField{
            .name = "moe.gate_limit", .kind = constant, .is_later = true, .may_be_zero = true, .usual = "7"},
        m.gate.limit);
    visit(ConfigField{.name = "moe.gate_alpha", .kind = constant, .is_later = true, .usual = "1.702"},
          m.gate.alpha);
    visit(
        ConfigField{
            .name = "moe.gate_shift", .kind = constant, .is_later = true, .may_be_zero = true, .usual = "1"},
        m.gate.shift);
    visit(ConfigField{.name = "moe.score_before_experts", .kind = constant, .is_later = true},
          m.gate.scales_input);
    visit(ConfigField{.name = "moe.load_balance_coeff",
                      .kind = limit,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "1e-3"},
          m.balance_rate);
    visit(ConfigField{.name = "moe.keeps_expert_bias", .is_later = true}, m.keeps_bias);
    visit(ConfigField{.name = "moe.sequence_balance_coeff",
                      .kind = limit,
                      .is_later = true,
                      .may_be_zero = true,
                      .usual = "1e-4"},
          m.sequence_balance);
}

/// ConfigError naming the field, the rule and the nearest valid value.
void require_valid(const MoeConfig& moe);

/// The form in which the norm before the layer should give its output, which goes where `output` says.
Output input_form(const Declare& declare, const MoeConfig& moe, Output output);
/// Declares the parameters, with torchtitan's names, and builds the layer. `activated`: see
/// build_feed_forward; for the shared experts.
std::unique_ptr<Sublayer> build_moe(const Declare& declare, const MoeConfig& moe, LinearInput input,
                                    Output activated);

/// Adds the loss that balances the experts within each sequence, if there is one. Routers compute it in their
/// backward.
void add_losses(const MoeConfig& moe, std::vector<PartOfLoss>& losses);

/// A bias [E] that balances the loads of a layer's experts, and the layer's row of Ctx::counts.
struct BalanceBias {
    const Storage* storage;
    int64_t row;
};
/// Changes the biases by the loads of a step, as work of the Exec. `counts`: Ctx::counts, summed over all
/// ranks. Writes nothing if scalars.refusals is not 0.
void balance_experts(Exec& exec, const Kernels& kernels, const MoeConfig& moe,
                     std::span<const BalanceBias> biases, Tensor counts, const StepScalars& scalars);

/// Its tensors in usual Hugging Face folders, without those of routed experts.
std::span<const HubName> moe_hub_names();
/// The tensors of experts: "mlp.experts.3.gate_proj.weight".
struct ExpertNames {
    const char* experts = "mlp.experts";
    const char *w1 = "gate_proj", *w2 = "down_proj", *w3 = "up_proj";
};
/// The places of the matrices of routed experts, of which each expert has its own tensors in usual folders,
/// and of the biases that balance loads, which have none there. std::nullopt: another parameter.
std::optional<std::vector<HubPlace>> usual_expert_places(const std::string& parameter, const Shape& shape,
                                                         const ExpertNames& names = {});

}  // namespace coeus
