// SPDX-License-Identifier: Apache-2.0
// Decoder: embedding, a stack of blocks, and the head, with the parameters they share.
#pragma once

#include "coeus/layers/block.hpp"
#include "coeus/layers/embedding.hpp"
#include "coeus/layers/loss_head.hpp"
#include "coeus/models/decoder_config.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <vector>

namespace coeus {

/// Declares parameters and layers; Parameters::allocate() gets the memory later, so that planning needs none.
class Decoder {
public:
    /// `positions`: the most positions a sequence will have (rows of the RoPE table).
    /// `place`: which part of each parameter is this rank's. `recompute`: of each block; empty: nothing.
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions,
            const ShardPlace& place = {}, const std::vector<Recompute>& recompute = {});
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;

    const DecoderConfig& config() const { return config_; }
    Parameters& parameters() { return parameters_; }
    const Parameters& parameters() const { return parameters_; }
    const Embedding& embedding() const { return *embedding_; }
    const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }
    const LossHead& head() const { return *head_; }
    int64_t positions() const { return rope_.view().rows(); }

    /// Units of Parameters: what is gathered together.
    size_t embedding_unit() const { return 0; }
    size_t block_unit(size_t block) const { return 1 + block; }
    /// Of the final norm and the output; the embedding's where they share their table.
    size_t head_unit() const { return config_.tied ? embedding_unit() : 1 + blocks_.size(); }

private:
    DecoderConfig config_;
    Parameters parameters_;
    RopeTable rope_;
    std::unique_ptr<Embedding> embedding_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::unique_ptr<LossHead> head_;
};

}  // namespace coeus
