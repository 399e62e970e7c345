// SPDX-License-Identifier: Apache-2.0
// Decoder: a decoder-only language model, with an embedding, a stack of layers, the loss of the next token,
// and perhaps multi-token prediction: for each depth a lookup in the embedding, a layer, and the loss of a
// token further ahead.
#pragma once

#include "coeus/models/decoder_part.hpp"
#include "coeus/models/model.hpp"
#include "coeus/models/token_batches.hpp"

#include <string>
#include <vector>

namespace coeus {

/// Groups of equal layers, each with the numbers of its layers; sorted by their first layer. Without those of
/// multi-token prediction.
std::vector<std::vector<int64_t>> equal_layers(const DecoderConfig& config);

/// The first parameter that has another shape in `source`, such as "norm.weight is [256] in this run, [512]
/// there"; "" if all that both have are alike and `source` has as many layers.
std::string other_shape(const DecoderConfig& model, const DecoderConfig& source);

class Decoder : public Model {
public:
    /// `positions`: the maximum number of positions of a sequence (rows of the RoPE table). `place`: the
    /// part of each parameter on this rank. `parts`: the parts of its pipeline stages, in their order.
    /// `recompute`: what each block of the whole model recomputes, those of further tokens last; empty:
    /// nothing.
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions, const ModelPlace& place,
            const std::vector<DecoderPart>& parts, const std::vector<Recompute>& recompute);
    /// The whole decoder.
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
            const ModelPlace& place = {}, const std::vector<Recompute>& recompute = {})
        : Decoder(config, types, positions, place, {DecoderPart::whole(config)}, recompute) {}
    const DecoderConfig& config() const { return config_; }
    /// The loads of experts: a row for each layer with experts.
    Counters counters() const override {
        return {.name = "loads of experts",
                .rows = config_.moe_rows(),
                .columns = config_.moe.experts,
                .choices = Counters::Choices::experts,
                .layers = config_.layers_with_experts()};
    }
    /// Balances the loads by the biases of this rank's layers with experts.
    void after_update(Exec& exec, const Kernels& kernels, Tensor counts,
                      const StepScalars& scalars) const override;
    /// The projection of a tied decoder is listed in addition to its table.
    std::vector<LayerMatrix> matrices() const override;
    const PositionTables& tables() const { return tables_; }
    int64_t positions() const { return tables_.positions(); }
    /// The table [V, D] of the output projection, on this rank or not.
    const Param& output() const { return *output_; }
    /// Depths of multi-token prediction: how many tokens after the next one it predicts too.
    int64_t depths() const { return config_.mtp.layers; }
    const BatchKind& batches() const override { return batches_; }
    /// The hidden state, one tensor [rows, D]; and what enters a layer of multi-token prediction, two of
    /// them.
    Flow flow_into(size_t segment, const BatchShape& local) const override;
    void allocate_tables(const Device& device) override { tables_.allocate(device); }
    int64_t table_bytes() const override { return tables_.bytes(); }

private:
    // These declare the parameters of a part of the model, in this order, and add its segments. `here`: this
    // rank has the part. The table of the embedding may be used at the end of the model too.
    struct HeadParts;
    const Storage& add_embedding(bool embeds, bool heads);
    void add_layer(int64_t layer, bool here, Recompute recompute);
    HeadParts declare_head(bool here, const Storage& table);
    void add_head(bool here, HeadParts parts);
    void add_mtp(int64_t depth, bool here, const Storage& table, const Storage& output, Recompute recompute);
    // Begins the unit of the parameters that are declared next; returns its number, 0 on other ranks.
    size_t begin_unit(bool here, int uses = 1);
    // The storages of all ranks that were declared after the first `number`.
    std::vector<const Storage*> declared_since(size_t number) const;
    void declare_neighbours();

    DecoderConfig config_;
    const Param* output_ = nullptr;
    TokenBatches batches_;
    PositionTables tables_;
    std::vector<BalanceBias> balance_biases_;  // of this rank's layers
    std::vector<size_t> mtp_layers_;           // the segments that are layers of multi-token prediction
};

/// The model as a decoder, which it must be: for what is about text alone.
Decoder& decoder_of(Model& model);
const Decoder& decoder_of(const Model& model);

}  // namespace coeus
