// SPDX-License-Identifier: Apache-2.0
// DecoderPart: what of a decoder one pipeline stage has, and how a decoder is split into stages. The modules
// are, in order: tok_embeddings, layers.0, layers.1, ..., norm, output; norm and output stay together.
#pragma once

#include "coeus/models/decoder_config.hpp"

#include <string>
#include <vector>

namespace coeus {

struct DecoderPart {
    bool embedding = false;
    int64_t first_layer = 0, last_layer = 0;  ///< last: one beyond
    bool head = false;                        ///< norm and output

    static DecoderPart whole(const DecoderConfig& config) { return {true, 0, config.layers, true}; }
    int64_t layers() const { return last_layer - first_layer; }
    /// "tok_embeddings, layers 0 to 3"
    std::string text() const;
    bool operator==(const DecoderPart&) const = default;
};

/// Costs of what is no layer, in layers.
struct SplitWeights {
    int64_t embedding = 1;  ///< parallelism.pipeline_parallel_first_stage_less_layers
    int64_t head = 1;       ///< parallelism.pipeline_parallel_last_stage_less_layers
};

/// torchtitan's rule: layers and weights divided evenly, the first stages having one more where they do not
/// divide; the first stage has as many layers less as the embedding weighs, the last as the head. ConfigError
/// naming what is too large, and the most that works.
std::vector<DecoderPart> split_evenly(const DecoderConfig& config, int stages, const SplitWeights& weights);

/// Stages by the names of their modules (parallelism.module_fqns_per_model_part). ConfigError naming the
/// first stage and module that is unknown, missing, twice or out of order.
std::vector<DecoderPart> split_by_names(const DecoderConfig& config,
                                        const std::vector<std::vector<std::string>>& lists);

}  // namespace coeus
