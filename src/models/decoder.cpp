// SPDX-License-Identifier: Apache-2.0
// Units of a decoder, and its parameters outside of layers, with torchtitan's names.
#include "coeus/models/decoder.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/models/build_block.hpp"
#include "decoder_head.hpp"

#include <algorithm>

namespace coeus {

namespace {

std::vector<PartOfLoss> losses_of(const DecoderConfig& config) {
    std::vector<PartOfLoss> losses;
    if (config.moe.sequence_balance > 0)
        losses.push_back({.number = decoder_loss::balance,
                          .topic = "moe",
                          .name = "sequence_balance_loss",
                          .terms = PartOfLoss::Terms::of_own_tokens});
    if (config.mtp.layers > 0)
        losses.push_back({.number = decoder_loss::mtp, .topic = "", .name = "mtp_loss"});
    return losses;
}

Temperature temperature_of(const DecoderConfig& config) {
    return config.is_latent() ? Temperature{} : config.grouped().temperature;
}

}  // namespace

Decoder::Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
                 const ModelPlace& place, const std::vector<DecoderPart>& parts,
                 const std::vector<Recompute>& recompute)
    : Model(types, place),
      config_(config),
      batches_(config.mtp.layers),
      tables_{{positions, config.head_sizes().rotated_dim, config.rope.theta, config.rope.scaling,
               types.accumulate()},
              {positions, temperature_of(config), types.accumulate()}} {
    set_losses(losses_of(config));
    const auto has = [&](const auto& what) { return std::ranges::any_of(parts, what); };
    const bool embeds = has(&DecoderPart::embedding), heads = has(&DecoderPart::head);
    const Declare declare(parameters_, config_);
    const Shape table_shape = {config.vocab, config.dim};
    const auto begin_unit = [&](bool here, int uses = 1) {
        parameters_.set_here(here);
        return here ? parameters_.begin_unit(uses) : 0;
    };

    const int depths = int(config.mtp.layers);
    const bool embeds_at_end = config.embeds_at_end() && heads,
               shared = config.embeds_at_end() && embeds != heads;
    const int uses_as_head = 1 + depths,
              table_uses = (embeds ? 1 : 0) + (heads ? depths + (config.tied ? uses_as_head : 0) : 0);
    const size_t table_unit = begin_unit(embeds || embeds_at_end, table_uses);
    Param embedded = declare.weight("tok_embeddings", table_shape, WeightRole::embedding, Split::rows);
    embedded.copies = shared ? 2 : 1;
    embedded.copy = shared && heads ? 1 : 0;
    const Storage& table = parameters_.add(std::move(embedded));
    if (shared && table.trainable()) shared_storage_ = &table;
    ends_train_one_parameter_ = config.embeds_at_end() && table.trainable();
    segments_.push_back({.name = "tok_embeddings",
                         .kind = Segment::Kind::block,
                         .unit = table_unit,
                         .block = embeds ? std::make_unique<Embedding>(table) : nullptr});
    std::unique_ptr<Norm> norm;
    if (config.tied) {
        parameters_.set_here(heads);
        norm = declare.norm("norm", Output::recomputed);
    }
    for (int64_t layer = 0; layer < config.layers; ++layer) {
        const bool here = has(
            [&](const DecoderPart& part) { return layer >= part.first_layer && layer < part.last_layer; });
        const size_t unit = begin_unit(here);
        std::unique_ptr<Block> block =
            build_block(parameters_, config_, layer, tables_,
                        recompute.empty() ? Recompute::nothing : recompute[size_t(layer)]);
        segments_.push_back({.name = fmt::format("layers.{}", layer),
                             .unit = unit,
                             .block = here ? std::move(block) : nullptr});
    }
    size_t head_unit = table_unit;
    const Storage* output = &table;
    if (!config.tied) {
        head_unit = begin_unit(heads, uses_as_head);
        norm = declare.norm("norm", Output::recomputed);
        output = &parameters_.add(declare.linear("output", table_shape, WeightRole::output, Split::rows));
    }
    segments_.push_back({.name = "output", .kind = Segment::Kind::objective, .unit = head_unit});
    if (heads) segments_.back().objective = std::make_unique<DecoderHead>(std::move(norm), *output);
    for (int depth = 0; depth < depths; ++depth) {
        const size_t unit = begin_unit(heads);
        std::unique_ptr<Block> layer = build_mtp_layer(
            parameters_, config_, depth, tables_,
            recompute.empty() ? Recompute::nothing : recompute[size_t(config.layers + depth)]);
        segments_.push_back({.name = fmt::format("mtp_embeddings.{}", depth),
                             .kind = Segment::Kind::block,
                             .unit = table_unit,
                             .block = heads ? std::make_unique<Embedding>(table, depth + 1) : nullptr});
        segments_.push_back({.name = fmt::format("mtp_layers.{}", depth),
                             .unit = unit,
                             .block = heads ? std::move(layer) : nullptr});
        segments_.push_back({.name = fmt::format("mtp_output.{}", depth),
                             .kind = Segment::Kind::objective,
                             .unit = head_unit});
        if (heads)
            segments_.back().objective =
                std::make_unique<MtpHead>(*output, depth + 1, config.mtp.scale / depths);
    }
    for (const DecoderPart& part : parts) parts_.push_back(part.segments(config));
    declare_neighbours();
    find_first_trained();
}

// Units that are used one after the other in the forward, and those of layers in the backward. Units with
// adjacent numbers are neighbours anyway.
void Decoder::declare_neighbours() {
    const auto declare = [&](const Segment& one, const Segment& next) {
        const size_t low = std::min(one.unit, next.unit), high = std::max(one.unit, next.unit);
        if (high > low + 1) parameters_.use_after(low, high);
    };
    const Segment *before = nullptr, *layer_before = nullptr;
    for (const Segment& segment : segments_) {
        const bool is_layer = segment.kind == Segment::Kind::layer,
                   is_here = segment.block || segment.objective;
        if (is_here && before) declare(*before, segment);
        if (is_here && is_layer && layer_before) declare(*layer_before, segment);
        before = is_here ? &segment : nullptr;
        if (is_layer) layer_before = before;
    }
}

// The parameters of a segment have its name before their own, also those of other pipeline ranks.
void Decoder::find_first_trained() {
    const auto trains = [&](const Segment& segment) {
        return std::ranges::any_of(parameters_.model(), [&](const Storage* storage) {
            return storage->trainable() && storage->params().front().name.starts_with(segment.name + ".");
        });
    };
    // routers compute the loss that balances the experts of a sequence in their backward
    if (config_.moe.sequence_balance > 0) return;
    while (first_trained_ < first_objective() && !trains(segments_[first_trained_])) ++first_trained_;
}

std::vector<Decoder::BalanceBias> Decoder::balance_biases() const {
    std::vector<BalanceBias> all;
    int64_t layer = -1;
    for (const Segment& segment : segments_) {
        if (segment.kind != Segment::Kind::layer) continue;
        ++layer;
        if (!segment.block) continue;
        const Unit& unit = parameters_.units()[segment.unit];
        for (size_t i = unit.first; i < unit.first + unit.count; ++i)
            if (parameters_.storages()[i].is_exact())
                all.push_back({&parameters_.storages()[i], config_.moe_row(layer)});
    }
    return all;
}

void Decoder::after_update(Exec& exec, const Kernels& kernels, Tensor counts,
                           const StepScalars& scalars) const {
    if (config_.moe.balance_rate <= 0) return;
    for (const BalanceBias& bias : balance_biases())
        kernels.balance_experts(exec, bias.storage->master,
                                counts.slice_rows(bias.row, 1).reshape({counts.cols()}),
                                config_.moe.balance_rate, scalars);
}

namespace {

template <class To, class From>
To& decoder_in(From& model) {
    auto* decoder = dynamic_cast<To*>(&model);
    require(decoder != nullptr, "the model is not a decoder");
    return *decoder;
}

}  // namespace

Decoder& decoder_of(Model& model) {
    return decoder_in<Decoder>(model);
}

const Decoder& decoder_of(const Model& model) {
    return decoder_in<const Decoder>(model);
}

std::vector<std::vector<int64_t>> equal_layers(const DecoderConfig& config) {
    std::vector<std::vector<int64_t>> groups;
    for (int64_t i = 0; i < config.layers; ++i) {
        const auto same = std::ranges::find_if(
            groups, [&](const auto& group) { return config.layer(group.front()) == config.layer(i); });
        (same == groups.end() ? groups.emplace_back() : *same).push_back(i);
    }
    return groups;
}

Flow Decoder::flow_into(size_t segment, const BatchShape& local) const {
    if (segment == 0) return {};
    const int64_t rows = local.count() / parameters_.place().tp;
    const Tensor hidden(nullptr, parameters_.types().compute, {rows, config_.dim});
    const bool is_mtp_layer = segment > 1 && segments_[segment - 1].kind == Segment::Kind::block;
    return is_mtp_layer ? Flow({hidden, hidden}) : Flow(hidden);
}

}  // namespace coeus
