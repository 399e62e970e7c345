// SPDX-License-Identifier: Apache-2.0
// Decoder: embedding, a stack of blocks, and the head, with the parameters they share; or the parts of it
// that a pipeline rank has.
#pragma once

#include "coeus/layers/block.hpp"
#include "coeus/layers/embedding.hpp"
#include "coeus/layers/loss_head.hpp"
#include "coeus/models/decoder_part.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <vector>

namespace coeus {

/// Declares parameters and layers; Parameters::allocate() gets the memory later, so that planning needs none.
class Decoder {
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
    Decoder(const Decoder&) = delete;
    Decoder& operator=(const Decoder&) = delete;

    const DecoderConfig& config() const { return config_; }
    const std::vector<DecoderPart>& parts() const { return parts_; }
    Parameters& parameters() { return parameters_; }
    const Parameters& parameters() const { return parameters_; }
    const Embedding& embedding() const { return *embedding_; }
    /// By layer; null where another rank has it.
    const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }
    const LossHead& head() const { return *head_; }
    /// The table of a tied decoder that is also on another rank, with which its gradients are to be summed;
    /// else null.
    const Storage* shared_table() const { return shared_table_; }
    int64_t positions() const { return rope_.view().rows(); }
    /// Takes the memory of the parameters, on a device, and moves what is there already. With an optimizer or
    /// without: see Parameters.
    void allocate(bool with_optimizer, const Device& device = host_device());

    /// Units of Parameters: what is gathered together.
    size_t embedding_unit() const { return embedding_unit_; }
    size_t block_unit(size_t layer) const { return block_units_[layer]; }
    /// Of the final norm and the output; the embedding's where they share their table.
    size_t head_unit() const { return head_unit_; }

private:
    DecoderConfig config_;
    std::vector<DecoderPart> parts_;
    Parameters parameters_;
    RopeTable rope_;
    std::unique_ptr<Embedding> embedding_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::unique_ptr<LossHead> head_;
    size_t embedding_unit_ = 0, head_unit_ = 0;
    std::vector<size_t> block_units_;
    const Storage* shared_table_ = nullptr;
};

}  // namespace coeus
