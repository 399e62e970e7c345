// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/build_block.hpp"

#include "coeus/layers/parallel_block.hpp"
#include "coeus/layers/recompute_block.hpp"
#include "coeus/models/registry.hpp"

namespace coeus {

ResidualBlock::Part build_part(const Declare& declare, const std::string& name, Output output,
                               FunctionRef<std::unique_ptr<Sublayer>(LinearInput)> build, Output next) {
    const NormPlacement placement = declare.model().norm_placement;
    ResidualBlock::Part part;
    LinearInput input;
    if (placement != NormPlacement::after) {
        part.before = declare.norm(name, output);
        input = LinearInput(output, *part.before);
    }
    part.sublayer = build(input);
    if (placement == NormPlacement::before) return part;
    Output result = placement == NormPlacement::after ? next : Output::kept;
    result.place = Output::kept;
    part.after = declare.residual_norm("post_" + name, result);
    return part;
}

std::unique_ptr<Sublayer> build_attention(const Declare& declare, const AttentionConfig& config,
                                          const PositionTables& tables, LinearInput input) {
    return std::visit([&](const auto& kind) { return build_attention(declare, kind, tables, input); },
                      config);
}

namespace {

// The sublayers in the place of a feed-forward layer, by the type of their configuration.
std::unique_ptr<Sublayer> build(const Declare& declare, const FeedForwardConfig& dense, LinearInput input,
                                Output activated) {
    return build_feed_forward(declare, dense, input, activated);
}
std::unique_ptr<Sublayer> build(const Declare& declare, const MoeConfig& moe, LinearInput input,
                                Output activated) {
    return build_moe(declare, moe, input, activated);
}

std::unique_ptr<Block> usual_block(const Declare& declare, const PositionTables& tables, Output output) {
    const LayerConfig layer = declare.model().layer(declare.layer());
    std::vector<ResidualBlock::Part> parts;
    const Output to_ffn =
        std::visit([&](const auto& feed_forward) { return input_form(declare, feed_forward, output); },
                   layer.feed_forward);
    std::visit(
        [&](const auto& attention) {
            const Output form = output_for(declare, first_weights(declare, attention), output);
            parts.push_back(build_part(
                declare, "attention_norm", form,
                [&](LinearInput input) { return build_attention(declare, attention, tables, input); },
                to_ffn));
        },
        layer.attention);
    std::visit(
        [&](const auto& feed_forward) {
            parts.push_back(build_part(declare, "ffn_norm", to_ffn, [&](LinearInput input) {
                return build(declare, feed_forward, input, output);
            }));
        },
        layer.feed_forward);
    return std::make_unique<ResidualBlock>(std::move(parts));
}

// The form of the output of one norm for both sublayers.
Output form_for_both(const Declare& declare, const LayerConfig& layer, Output output) {
    if (output.place == Output::recomputed) output.place = Output::kept;  // see ParallelBlock
    if (!layer.is_dense()) return input_form(declare, layer.moe(), output);
    std::vector<Param> weights =
        std::visit([&](const auto& attention) { return first_weights(declare, attention); }, layer.attention);
    for (Param& weight : first_weights(declare, layer.dense())) weights.push_back(std::move(weight));
    return output_for(declare, weights, output);
}

std::unique_ptr<Block> parallel_block(const Declare& declare, const PositionTables& tables, Output output) {
    const LayerConfig layer = declare.model().layer(declare.layer());
    const Output form = form_for_both(declare, layer, output);
    std::unique_ptr<Norm> norm = declare.norm("attention_norm", form);
    const LinearInput input(form, *norm);
    std::vector<std::unique_ptr<Sublayer>> sublayers;
    sublayers.push_back(build_attention(declare, layer.attention, tables, input));
    std::visit(
        [&](const auto& feed_forward) { sublayers.push_back(build(declare, feed_forward, input, output)); },
        layer.feed_forward);
    return std::make_unique<ParallelBlock>(std::move(norm), std::move(sublayers));
}

}  // namespace

Output norm_output(Recompute recompute) {
    return recompute == Recompute::operations ? Output::recomputed : Output::kept;
}

std::unique_ptr<Block> build_layer(const Declare& declare, const PositionTables& tables,
                                   Recompute recompute) {
    const auto own = find_family(declare.model().family).own_block;
    const auto common = declare.model().parallel_block ? parallel_block : usual_block;
    std::unique_ptr<Block> block = (own ? own : common)(declare, tables, norm_output(recompute));
    if (recompute == Recompute::block) return std::make_unique<RecomputeBlock>(std::move(block));
    return block;
}

std::unique_ptr<Block> build_block(Parameters& parameters, const DecoderConfig& model, int64_t number,
                                   const PositionTables& tables, Recompute recompute,
                                   std::vector<BalanceBias>* biases) {
    const Declare declare(parameters, model, fmt::format("layers.{}.", number), number, biases);
    return build_layer(declare, tables, recompute);
}

}  // namespace coeus
