// SPDX-License-Identifier: Apache-2.0
// DecoderPart: the part of a decoder in one pipeline stage, and how a decoder is split into stages. Its
// modules are, in order: tok_embeddings, layers.0, layers.1, ..., norm, output, mtp_layers.0, ... Those from
// norm on are always in the same stage.
#pragma once

#include "coeus/models/decoder_config.hpp"
#include "coeus/models/model.hpp"

#include <string>
#include <vector>

namespace coeus {

struct DecoderPart {
    bool embedding = false;
    int64_t first_layer = 0, last_layer = 0;  ///< [first_layer, last_layer)
    bool head = false;                        ///< norm, output, and multi-token prediction

    static DecoderPart whole(const DecoderConfig& config) { return {true, 0, config.layers, true}; }
    int64_t layers() const { return last_layer - first_layer; }
    /// The same as segments of the model (Model::segments()), and back.
    ModelPart segments(const DecoderConfig& config) const;
    static DecoderPart of(const DecoderConfig& config, const ModelPart& part);
    /// "tok_embeddings, layers 0 to 3"
    std::string text() const;
    bool operator==(const DecoderPart&) const = default;
};

/// Costs of the modules that are not layers, in layers.
struct SplitWeights {
    int64_t embedding = 1;  ///< parallelism.pipeline_parallel_first_stage_less_layers
    int64_t head = 1;       ///< parallelism.pipeline_parallel_last_stage_less_layers
};

/// torchtitan's rule: the sum of layers and weights is divided evenly among the stages; if there is a
/// remainder, the first stages have one more. The weight of the embedding is subtracted from the layers of
/// the first stage, the weight of the head from those of the last. ConfigError naming the value that is too
/// large, and its maximum.
std::vector<DecoderPart> split_evenly(const DecoderConfig& config, int stages, const SplitWeights& weights);

/// Stages from the names of their modules (parallelism.module_fqns_per_model_part). ConfigError naming the
/// first stage and module that is unknown, missing, listed twice or out of order.
std::vector<DecoderPart> split_by_names(const DecoderConfig& config,
                                        const std::vector<std::vector<std::string>>& lists);

}  // namespace coeus
