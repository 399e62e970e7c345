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
    Decoder(const DecoderConfig& config, const StateTypes& types, int64_t positions);
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;

    const DecoderConfig& config() const { return config_; }
    Parameters& parameters() { return parameters_; }
    const Parameters& parameters() const { return parameters_; }
    const Embedding& embedding() const { return *embedding_; }
    const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }
    const LossHead& head() const { return *head_; }
    int64_t positions() const { return rope_.view().rows(); }

private:
    DecoderConfig config_;
    Parameters parameters_;
    RopeTable rope_;
    std::unique_ptr<Embedding> embedding_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::unique_ptr<LossHead> head_;
};

}  // namespace coeus
