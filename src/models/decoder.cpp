// SPDX-License-Identifier: Apache-2.0
// Units of a decoder, and its parameters outside of layers, with torchtitan's names.
#include "coeus/models/decoder.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/models/build_block.hpp"
#include "decoder_head.hpp"

#include <algorithm>

namespace coeus {

Decoder::Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
                 const ModelPlace& place, const std::vector<DecoderPart>& parts,
                 const std::vector<Recompute>& recompute)
    : Model(types, place),
      config_(config),
      tables_{{positions, config.attention.rotated_dim(), config.rope.theta, config.rope.scaling,
               types.accumulate()},
              {positions, config.attention.temperature, types.accumulate()}} {
    const auto has = [&](const auto& what) { return std::ranges::any_of(parts, what); };
    const bool embeds = has(&DecoderPart::embedding), heads = has(&DecoderPart::head);
    const Declare declare(parameters_, config_);
    const Shape table_shape = {config.vocab, config.dim};
    const auto begin_unit = [&](bool here, int uses = 1) {
        parameters_.set_here(here);
        return here ? parameters_.begin_unit(uses) : 0;
    };

    const bool tied_head = config.tied && heads;
    const size_t table_unit = begin_unit(embeds || tied_head, embeds && tied_head ? 2 : 1);
    const bool shared = config.tied && embeds != heads;
    Param embedded = declare.weight("tok_embeddings", table_shape, WeightRole::embedding, Split::rows);
    embedded.copies = shared ? 2 : 1;
    embedded.copy = shared && heads ? 1 : 0;
    const Storage& table = parameters_.add(std::move(embedded));
    if (shared) shared_storage_ = &table;
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
        head_unit = begin_unit(heads);
        norm = declare.norm("norm", Output::recomputed);
        output = &parameters_.add(declare.weight("output", table_shape, WeightRole::output, Split::rows));
    }
    segments_.push_back({.name = "output", .kind = Segment::Kind::objective, .unit = head_unit});
    if (heads) segments_.back().objective = std::make_unique<DecoderHead>(std::move(norm), *output);
    for (const DecoderPart& part : parts)
        parts_.push_back({.first = part.embedding ? 0 : size_t(part.first_layer) + 1,
                          .last = part.head ? segments_.size() : size_t(part.last_layer) + 1});
    declare_neighbours();
}

// Units with adjacent numbers are neighbours anyway.
void Decoder::declare_neighbours() {
    const auto is_here = [](const Segment& segment) { return segment.block || segment.objective; };
    for (size_t s = 0; s + 1 < segments_.size(); ++s) {
        const Segment &one = segments_[s], &next = segments_[s + 1];
        const auto [low, high] = std::minmax(one.unit, next.unit);
        if (is_here(one) && is_here(next) && high > low + 1) parameters_.use_after(low, high);
    }
}

std::vector<Decoder::BalanceBias> Decoder::balance_biases() const {
    std::vector<BalanceBias> all;
    for (const size_t layer : layers_here()) {
        const Unit& unit = parameters_.units()[segments_[layer + 1].unit];
        for (size_t i = unit.first; i < unit.first + unit.count; ++i)
            if (parameters_.storages()[i].is_exact())
                all.push_back({&parameters_.storages()[i], config_.moe_row(int64_t(layer))});
    }
    return all;
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

Flow Decoder::flow_into(size_t segment, int64_t rows) const {
    if (segment == 0) return {};
    return Tensor(nullptr, parameters_.types().compute, {rows, config_.dim});
}

}  // namespace coeus
