// SPDX-License-Identifier: Apache-2.0
// Units of a decoder, and its parameters outside of layers, with torchtitan's names.
#include "coeus/models/decoder.hpp"

#include "coeus/layers/embedding.hpp"
#include "coeus/models/build_block.hpp"
#include "decoder_head.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace coeus {

namespace {

std::vector<PartOfLoss> losses_of(const DecoderConfig& config) {
    std::vector<PartOfLoss> losses;
    add_losses(config.moe, losses);
    add_losses(config.mtp, losses);
    if (config.z_loss_weight > 0)
        losses.push_back({.number = decoder_loss::z, .topic = "", .name = "z_loss"});
    return losses;
}

// For sequences of so many positions.
std::vector<RopeTable> rope_tables(const DecoderConfig& config, int64_t positions, Dtype dtype) {
    std::vector<RopeTable> tables;
    for (const RopeConfig& rope : config.ropes())
        tables.emplace_back(positions, config.head_sizes().rotated_dim, rope.theta, rope.scaling, dtype);
    return tables;
}

Temperature temperature_of(const DecoderConfig& config) {
    return config.is_latent() ? Temperature{} : config.grouped().temperature;
}

// The table of the embedding, and the matrix that makes logits.
Shape table_shape(const DecoderConfig& config) {
    return {config.vocab, config.dim};
}

// See DecoderConfig::residual_scale.
std::unique_ptr<Embedding> embedding_of(const DecoderConfig& config, const Storage& table, int64_t depth) {
    return std::make_unique<Embedding>(table, depth, config.embedding_scale / config.residual_scale);
}

// How often a micro-batch's backward uses the matrix that makes logits: for the next token, and for each
// token further ahead.
int uses_of_output(const DecoderConfig& config) {
    return 1 + int(config.mtp.layers);
}

// How this rank uses the embedding's table: at the start of the model, and at its end in a tied head and in
// the embeddings of multi-token prediction.
struct TableUse {
    TableUse(const DecoderConfig& config, bool embeds, bool heads)
        : at_start(embeds),
          at_end(heads && config.embeds_at_end()),
          is_shared(config.embeds_at_end() && embeds != heads),
          times((at_start ? 1 : 0) +
                (at_end ? int(config.mtp.layers) + (config.tied ? uses_of_output(config) : 0) : 0)) {}
    bool is_here() const { return at_start || at_end; }

    bool at_start, at_end;
    bool is_shared;  // the first and the last stage are on two ranks, and each has a copy
    int times;       // in a micro-batch's backward
};

}  // namespace

// The last norm and the matrix that makes logits, which is the table in a tied head.
struct Decoder::HeadParts {
    std::unique_ptr<Norm> norm;
    const Storage* output = nullptr;
    std::vector<const Storage*> declared;  // of both, without the table
};

Decoder::Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
                 const ModelPlace& place, const std::vector<DecoderPart>& parts,
                 const std::vector<Recompute>& recompute)
    : Model(types, place),
      config_(config),
      batches_(config.mtp.layers, config.vocab),
      tables_{rope_tables(config, positions, types.accumulate()),
              {positions, temperature_of(config), types.accumulate()}} {
    require(recompute.empty() || int64_t(recompute.size()) == config.all_layers(),
            "each layer of the whole model says what it recomputes, those of further tokens too");
    set_losses(losses_of(config));
    const auto has = [&](const auto& what) { return std::ranges::any_of(parts, what); };
    const auto has_layer = [&](int64_t layer) {
        return has([&](const DecoderPart& p) { return layer >= p.first_layer && layer < p.last_layer; });
    };
    const auto recomputed = [&](int64_t layer) {
        return recompute.empty() ? Recompute::nothing : recompute[size_t(layer)];
    };
    const bool embeds = has(&DecoderPart::embedding), heads = has(&DecoderPart::head);
    const Storage& table = add_embedding(embeds, heads);
    HeadParts head;
    if (config.tied) head = declare_head(heads, table);  // the norm is gathered with the table
    for (int64_t layer = 0; layer < config.layers; ++layer)
        add_layer(layer, has_layer(layer), recomputed(layer));
    if (!config.tied) head = declare_head(heads, table);
    const Storage& output = *head.output;
    output_ = &output.params().front();
    add_head(heads, std::move(head));
    for (int64_t depth = 0; depth < config.mtp.layers; ++depth)
        add_mtp(depth, heads, table, output, recomputed(config.layers + depth));
    for (const DecoderPart& part : parts) parts_.push_back(part.segments(config));
    declare_neighbours();
    if (!config.moe.has_own_loss()) find_first_trained();
}

size_t Decoder::begin_unit(bool here, int uses) {
    parameters_.set_here(here);
    return here ? parameters_.begin_unit(uses) : 0;
}

std::vector<const Storage*> Decoder::declared_since(size_t number) const {
    const std::vector<const Storage*>& all = parameters_.model();
    return {all.begin() + int64_t(number), all.end()};
}

const Storage& Decoder::add_embedding(bool embeds, bool heads) {
    const TableUse use(config_, embeds, heads);
    const size_t unit = begin_unit(use.is_here(), use.times);
    Param param = Declare(parameters_, config_)
                      .weight("tok_embeddings", table_shape(config_), WeightRole::embedding, Split::rows);
    param.copies = use.is_shared ? 2 : 1;
    param.copy = use.is_shared && use.at_end ? 1 : 0;
    const Storage& table = parameters_.add(std::move(param));
    if (use.is_shared && table.trainable()) shared_storage_ = &table;
    ends_train_one_parameter_ = config_.embeds_at_end() && table.trainable();
    segments_.push_back({.name = "tok_embeddings",
                         .kind = Segment::Kind::block,
                         .unit = unit,
                         .storages = {&table},
                         .block = use.at_start ? embedding_of(config_, table, 0) : nullptr});
    return table;
}

void Decoder::add_layer(int64_t layer, bool here, Recompute recompute) {
    const size_t unit = begin_unit(here), first = parameters_.model().size();
    std::unique_ptr<Block> block =
        build_block(parameters_, config_, layer, tables_, recompute, here ? &balance_biases_ : nullptr);
    segments_.push_back({.name = fmt::format("layers.{}", layer),
                         .unit = unit,
                         .storages = declared_since(first),
                         .block = here ? std::move(block) : nullptr});
}

Decoder::HeadParts Decoder::declare_head(bool here, const Storage& table) {
    const Declare declare(parameters_, config_);
    if (config_.tied)
        parameters_.set_here(here);
    else
        begin_unit(here, uses_of_output(config_));
    const size_t first = parameters_.model().size();
    HeadParts head = {.norm = declare.norm("norm", Output::recomputed), .output = &table};
    if (!config_.tied)
        head.output =
            &parameters_.add(declare.linear("output", table_shape(config_), WeightRole::output, Split::rows));
    head.declared = declared_since(first);
    return head;
}

void Decoder::add_head(bool here, HeadParts parts) {
    segments_.push_back({.name = "output",
                         .kind = Segment::Kind::objective,
                         .unit = parts.output->unit(),
                         .storages = std::move(parts.declared)});
    if (here)
        segments_.back().objective = std::make_unique<DecoderHead>(
            std::move(parts.norm), *parts.output, config_.z_loss_weight, config_.logits_scale);
}

void Decoder::add_mtp(int64_t depth, bool here, const Storage& table, const Storage& output,
                      Recompute recompute) {
    const size_t unit = begin_unit(here), first = parameters_.model().size();
    std::unique_ptr<Block> layer =
        build_mtp_layer(parameters_, config_, depth, tables_, recompute, here ? &balance_biases_ : nullptr);
    segments_.push_back({.name = fmt::format("mtp_embeddings.{}", depth),
                         .kind = Segment::Kind::block,
                         .unit = table.unit(),
                         .block = here ? embedding_of(config_, table, depth + 1) : nullptr});
    mtp_layers_.push_back(segments_.size());
    segments_.push_back({.name = fmt::format("mtp_layers.{}", depth),
                         .unit = unit,
                         .storages = declared_since(first),
                         .block = here ? std::move(layer) : nullptr});
    segments_.push_back({.name = fmt::format("mtp_output.{}", depth),
                         .kind = Segment::Kind::objective,
                         .unit = output.unit()});
    const double weight = config_.mtp.scale / double(config_.mtp.layers);
    if (here)
        segments_.back().objective =
            std::make_unique<MtpHead>(output, depth + 1, weight, config_.logits_scale);
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

void Decoder::after_update(Exec& exec, const Kernels& kernels, Tensor counts,
                           const StepScalars& scalars) const {
    balance_experts(exec, kernels, config_.moe, balance_biases_, counts, scalars);
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
    for (LayerKind& kind : config.layer_kinds()) groups.push_back(std::move(kind.layers));
    // each layer of multi-token prediction is like the last layer
    for (std::vector<int64_t>& group : groups)
        std::erase_if(group, [&](int64_t layer) { return layer >= config.layers; });
    return groups;
}

std::string other_shape(const DecoderConfig& model, const DecoderConfig& source) {
    std::map<std::string, Shape> theirs;
    const Decoder ours(model, {}, 1), other(source, {}, 1);
    for (const Storage* storage : other.parameters().model())
        for (const Param& param : storage->params()) theirs.emplace(param.name, param.shape);
    for (const Storage* storage : ours.parameters().model())
        for (const Param& param : storage->params()) {
            const auto found = theirs.find(param.name);
            if (found != theirs.end() && !(found->second == param.shape))
                return fmt::format("{} is {} in this run, {} there", param.name, param.shape.text(),
                                   found->second.text());
        }
    if (source.moe.balance_rate > 0 && !model.moe.has_balance_bias() && model.has_experts())
        return fmt::format(
            "it has biases that balance the experts, and this model has none; set "
            "model.moe.load_balance_coeff = {}",
            source.moe.balance_rate);
    return model.layers > source.layers
               ? fmt::format("n_layers is {} in this run, {} there", model.layers, source.layers)
               : "";
}

std::vector<LayerMatrix> Decoder::matrices() const {
    std::vector<LayerMatrix> matrices = Model::matrices();
    if (config_.tied)
        matrices.push_back({.parameter = "output.weight",
                            .outputs = config_.vocab,
                            .inputs = config_.dim,
                            .always_stays = true});
    return matrices;
}

Flow Decoder::flow_into(size_t segment, const BatchShape& local) const {
    if (segment == 0) return {};
    const int64_t rows = local.count() / parameters_.place().tp;
    const Tensor hidden(nullptr, parameters_.types().compute, {rows, config_.dim});
    const bool is_mtp_layer = std::ranges::find(mtp_layers_, segment) != mtp_layers_.end();
    return is_mtp_layer ? Flow({hidden, hidden}) : Flow(hidden);
}

}  // namespace coeus
