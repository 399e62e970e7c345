// SPDX-License-Identifier: Apache-2.0
// Decoder: a decoder-only language model, with an embedding, a stack of layers, the loss of the next token,
// and perhaps multi-token prediction: for each depth a lookup in the embedding, a layer, and the loss of a
// token further ahead.
#pragma once

#include "coeus/models/decoder_part.hpp"
#include "coeus/models/model.hpp"

#include <vector>

namespace coeus {

/// Groups of equal layers, each with the numbers of its layers; sorted by their first layer. Without those of
/// multi-token prediction.
std::vector<std::vector<int64_t>> equal_layers(const DecoderConfig& config);

class Decoder : public Model {
public:
    /// `positions`: the maximum number of positions of a sequence (rows of the RoPE table). `place`: the
    /// part of each parameter on this rank. `parts`: the parts of its pipeline stages, in their order.
    /// `recompute`: what each block of the whole model recomputes; empty: nothing.
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions, const ModelPlace& place,
            const std::vector<DecoderPart>& parts, const std::vector<Recompute>& recompute);
    /// The whole decoder.
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
            const ModelPlace& place = {}, const std::vector<Recompute>& recompute = {})
        : Decoder(config, types, positions, place, {DecoderPart::whole(config)}, recompute) {}
    const DecoderConfig& config() const { return config_; }
    /// The biases that balance the loads of this rank's layers with experts, and the layer's row of
    /// Ctx::loads.
    struct BalanceBias {
        const Storage* storage;
        int64_t row;
    };
    std::vector<BalanceBias> balance_biases() const;
    const PositionTables& tables() const { return tables_; }
    int64_t positions() const { return tables_.positions(); }
    /// The hidden state, one tensor [rows, D]; and what enters a layer of multi-token prediction, two of
    /// them.
    Flow flow_into(size_t segment, int64_t rows) const override;
    void allocate_tables(const Device& device) override { tables_.allocate(device); }

private:
    void declare_neighbours();
    void find_first_trained();

    DecoderConfig config_;
    PositionTables tables_;
};

}  // namespace coeus
