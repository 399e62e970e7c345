// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/parts/mtp.hpp"

#include "coeus/layers/mtp_layer.hpp"
#include "coeus/models/build_block.hpp"
#include "coeus/models/hub_names.hpp"
#include "coeus/models/model.hpp"

#include <array>

namespace coeus {

void add_losses(const MtpConfig& mtp, std::vector<PartOfLoss>& losses) {
    if (mtp.layers > 0) losses.push_back({.number = decoder_loss::mtp, .topic = "", .name = "mtp_loss"});
}

std::unique_ptr<Block> build_mtp_layer(Parameters& parameters, const DecoderConfig& model, int64_t depth,
                                       const PositionTables& tables, Recompute recompute,
                                       std::vector<BalanceBias>* biases) {
    const Declare declare(parameters, model, fmt::format("mtp_layers.{}.", depth), model.layers + depth,
                          biases);
    const Output output = norm_output(recompute);
    std::unique_ptr<Norm> enorm = declare.norm("enorm", output), hnorm = declare.norm("hnorm", output);
    const Storage& joint = parameters.add(
        declare.weight("eh_proj", {model.dim, 2 * model.dim}, WeightRole::joint, Split::partial));
    const auto columns = [&](int64_t first, const Norm& norm) {
        return TokenLinear(joint, first, model.dim, LinearInput(output, norm));
    };
    const TokenLinear of_embedding = columns(0, *enorm), of_hidden = columns(model.dim, *hnorm);
    std::unique_ptr<Block> block = build_layer(declare, tables, recompute);
    return std::make_unique<MtpLayer>(MtpLayer::Parts{.enorm = std::move(enorm),
                                                      .hnorm = std::move(hnorm),
                                                      .of_embedding = of_embedding,
                                                      .of_hidden = of_hidden,
                                                      .block = std::move(block),
                                                      .norm = declare.norm("mtp_norm", Output::kept)});
}

namespace {

constexpr std::array names_of_mtp = {
    HubName{"enorm.weight", "enorm.weight"}, HubName{"hnorm.weight", "hnorm.weight"},
    HubName{"eh_proj.weight", "eh_proj.weight"}, HubName{"mtp_norm.weight", "shared_head.norm.weight"}};

}  // namespace

std::span<const HubName> mtp_hub_names() {
    return names_of_mtp;
}

}  // namespace coeus
