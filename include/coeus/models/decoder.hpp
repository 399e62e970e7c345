// SPDX-License-Identifier: Apache-2.0
// Decoder: a language model: embedding, a stack of layers, and the loss of the next token.
#pragma once

#include "coeus/models/decoder_part.hpp"
#include "coeus/models/model.hpp"

#include <vector>

namespace coeus {

/// Numbers of the layers that are alike, group after group, in the order of the first of each.
std::vector<std::vector<int64_t>> equal_layers(const DecoderConfig& config);

class Decoder : public Model {
public:
    /// `positions`: the most positions a sequence will have (rows of the RoPE table).
    /// `place`: which part of each parameter is this rank's. `parts`: of its pipeline stages, in their order.
    /// `recompute`: of each block of the whole model; empty: nothing.
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions, const ShardPlace& place,
            const std::vector<DecoderPart>& parts, const std::vector<Recompute>& recompute);
    /// The whole decoder.
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
            const ShardPlace& place = {}, const std::vector<Recompute>& recompute = {})
        : Decoder(config, types, positions, place, {DecoderPart::whole(config)}, recompute) {}
    const DecoderConfig& config() const { return config_; }
    int64_t positions() const { return rope_.view().rows(); }
    /// One tensor, the hidden state [rows, D].
    Flow flow_into(size_t segment, int64_t rows) const override;

private:
    void move_to(const Device& device) override { rope_.move_to(device); }

    DecoderConfig config_;
    RopeTable rope_;
};

}  // namespace coeus
