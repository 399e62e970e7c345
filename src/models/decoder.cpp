// SPDX-License-Identifier: Apache-2.0
// Names, shapes and initial values of the parameters of a dense decoder (Llama; torchtitan's names and
// rules).
#include "coeus/models/decoder.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/layers/recompute_block.hpp"
#include "token_objective.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

std::unique_ptr<Norm> make_norm(Parameters& parameters, const std::string& name, const DecoderConfig& config,
                                Output output) {
    if (config.norm_type == NormType::np_layer_norm)
        return std::make_unique<LayerNorm>(nullptr, config.norm_eps, output);
    const Storage& weight = parameters.add({.name = name + ".weight",
                                            .shape = {config.dim},
                                            .init = Init::ones(),
                                            .shard = {.tp = Split::partial}});
    if (config.norm_type == NormType::layer_norm)
        return std::make_unique<LayerNorm>(&weight, config.norm_eps, output);
    return std::make_unique<RmsNorm>(weight, config.norm_eps, output);
}

std::unique_ptr<Block> make_block(Parameters& parameters, int64_t layer, const DecoderConfig& m,
                                  const RopeTable& rope, Recompute recompute) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    const Init plain = Init::normal(0.02);
    const Init scaled = Init::normal(0.02 / std::sqrt(2.0 * double(layer + 1)));  // grows tamer with depth
    const auto weight = [&](const char* name, int64_t rows, int64_t cols, const Init& init, Split split) {
        return Param{
            .name = prefix + name + ".weight", .shape = {rows, cols}, .init = init, .shard = {.tp = split}};
    };
    const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
    const int tp = parameters.place().tp;

    // an input that is not kept is computed again by the norm before the layer
    const Output output = recompute == Recompute::operations ? Output::recomputed : Output::kept;
    const auto input = [&](const std::unique_ptr<Norm>& norm) {
        return LinearInput(output == Output::recomputed ? norm.get() : nullptr);
    };

    auto attention_norm = make_norm(parameters, prefix + "attention_norm", m, output);
    const Storage& wqkv = parameters.add({weight("attention.wq", q, m.dim, plain, Split::rows),
                                          weight("attention.wk", kv, m.dim, plain, Split::rows),
                                          weight("attention.wv", kv, m.dim, plain, Split::rows)});
    const Storage& wo = parameters.add(weight("attention.wo", m.dim, q, scaled, Split::cols));
    auto ffn_norm = make_norm(parameters, prefix + "ffn_norm", m, output);
    const Storage& w13 =
        parameters.add({weight("feed_forward.w1", m.ffn_hidden, m.dim, plain, Split::rows),
                        weight("feed_forward.w3", m.ffn_hidden, m.dim, scaled, Split::rows)});
    const Storage& w2 = parameters.add(weight("feed_forward.w2", m.dim, m.ffn_hidden, scaled, Split::cols));

    const AttentionConfig attention = {.heads = m.heads / tp,
                                       .kv_heads = m.kv_heads / tp,
                                       .head_dim = m.head_dim,
                                       .rope_layout = m.rope_layout,
                                       .layer = layer};
    const LinearInput attention_input = input(attention_norm), ffn_input = input(ffn_norm);
    std::unique_ptr<Block> block = std::make_unique<DenseBlock>(
        std::move(attention_norm), Attention(wqkv, wo, attention, rope, attention_input), std::move(ffn_norm),
        FeedForward(w13, w2, ffn_input, output));
    if (recompute == Recompute::block) return std::make_unique<RecomputeBlock>(std::move(block));
    return block;
}

}  // namespace

Decoder::Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
                 const ShardPlace& place, const std::vector<DecoderPart>& parts,
                 const std::vector<Recompute>& recompute)
    : Model(types, place),
      config_(config),
      rope_(positions, config.head_dim, config.rope_theta, config.rope_scaling, types.accumulate()) {
    for (const DecoderPart& part : parts)
        parts_.push_back({.first = part.embedding ? 0 : size_t(part.first_layer) + 1,
                          .last = size_t(part.last_layer) + 1,
                          .objective = part.head});
    const auto has = [&](const auto& what) { return std::ranges::any_of(parts, what); };
    const bool embeds = has(&DecoderPart::embedding), heads = has(&DecoderPart::head);
    const double output_std = 1 / std::sqrt(double(config.dim));
    const Init output_init = Init::truncated_normal(output_std, 3 * output_std);
    const auto begin_unit = [&](bool here, int uses = 1) {
        parameters_.set_here(here);
        return here ? parameters_.begin_unit(uses) : 0;
    };

    // a tied table starts as an output projection: with N(0, 1) the first loss would be far above
    // ln(vocabulary)
    const bool tied_head = config.tied && heads;
    const size_t table_unit = begin_unit(embeds || tied_head, embeds && tied_head ? 2 : 1);
    const bool shared = config.tied && embeds != heads;
    const Storage& table = parameters_.add({.name = "tok_embeddings.weight",
                                            .shape = {config.vocab, config.dim},
                                            .init = config.tied ? output_init : Init::normal(1),
                                            .shard = {.tp = Split::rows},
                                            .copies = shared ? 2 : 1,
                                            .copy = shared && heads ? 1 : 0});
    if (shared) shared_storage_ = &table;
    segments_.push_back({.name = "tok_embeddings",
                         .is_layer = false,
                         .unit = table_unit,
                         .block = embeds ? std::make_unique<Embedding>(table) : nullptr});
    if (config.tied) {
        parameters_.set_here(heads);
        auto norm = make_norm(parameters_, "norm", config, Output::recomputed);
        objective_unit_ = table_unit;
        if (heads) objective_ = std::make_unique<TokenObjective>(std::move(norm), table);
    }
    for (int64_t layer = 0; layer < config.layers; ++layer) {
        const bool here = has(
            [&](const DecoderPart& part) { return layer >= part.first_layer && layer < part.last_layer; });
        const size_t unit = begin_unit(here);
        std::unique_ptr<Block> block =
            make_block(parameters_, layer, config, rope_,
                       recompute.empty() ? Recompute::nothing : recompute[size_t(layer)]);
        segments_.push_back({.name = fmt::format("layers.{}", layer),
                             .unit = unit,
                             .block = here ? std::move(block) : nullptr});
    }
    if (const size_t units = parameters_.units().size(); tied_head && units > 2)
        parameters_.use_after(table_unit, units - 1);
    if (config.tied) return;
    objective_unit_ = begin_unit(heads);
    auto norm = make_norm(parameters_, "norm", config, Output::recomputed);
    const Storage& output = parameters_.add({.name = "output.weight",
                                             .shape = {config.vocab, config.dim},
                                             .init = output_init,
                                             .shard = {.tp = Split::rows}});
    if (heads) objective_ = std::make_unique<TokenObjective>(std::move(norm), output);
}

Flow Decoder::flow_into(size_t segment, int64_t rows) const {
    if (segment == 0) return {};
    return Tensor(nullptr, parameters_.types().compute, {rows, config_.dim});
}

}  // namespace coeus
