// SPDX-License-Identifier: Apache-2.0
// Multi-token prediction (DeepSeek-V3, section 2.2): for each depth a layer that predicts a token further
// ahead.
#pragma once

#include "coeus/layers/recompute.hpp"
#include "coeus/models/config_field.hpp"

#include <memory>
#include <span>
#include <vector>

namespace coeus {

class Block;
class Parameters;
struct BalanceBias;
struct DecoderConfig;
struct HubName;
struct PartOfLoss;
struct PositionTables;

struct MtpConfig {
    int64_t layers = 0;  ///< the depths; each has a layer like the last one of the model
    double scale = 0.3;  ///< weight of the mean of their losses

    bool operator==(const MtpConfig&) const = default;
};

template <class Visit>
void for_each_field(ConfigOf<MtpConfig> auto& m, Visit&& visit) {
    using enum FieldKind;
    visit(ConfigField{.name = "num_mtp_layers", .is_later = true, .least = 0, .most = 64}, m.layers);
    visit(
        ConfigField{
            .name = "mtp_scale", .kind = limit, .is_later = true, .may_be_zero = true, .usual = "0.3"},
        m.scale);
}

/// Adds the mean of the losses of all depths, if there are some.
void add_losses(const MtpConfig& mtp, std::vector<PartOfLoss>& losses);

/// Declares the parameters of a depth, from 0 on, and builds its layer. `biases`: see Declare.
std::unique_ptr<Block> build_mtp_layer(Parameters& parameters, const DecoderConfig& model, int64_t depth,
                                       const PositionTables& tables, Recompute recompute,
                                       std::vector<BalanceBias>* biases = nullptr);

/// Their tensors in Hugging Face folders of DeepSeek V3, besides those of a layer.
std::span<const HubName> mtp_hub_names();

}  // namespace coeus
