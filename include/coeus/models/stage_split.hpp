// SPDX-License-Identifier: Apache-2.0
// Which layers of a model are in which stage of a pipeline.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/models/decoder_part.hpp"

#include <string>
#include <vector>

namespace coeus {

/// Costs of the modules that are not layers, in layers.
struct SplitWeights {
    int64_t embedding = 1;  ///< parallelism.pipeline_parallel_first_stage_less_layers
    int64_t head = 1;       ///< parallelism.pipeline_parallel_last_stage_less_layers
};

/// torchtitan's rule: the sum of layers and weights is divided evenly among the stages; if there is a
/// remainder, the first stages have one more. The weight of the embedding is subtracted from the layers of
/// the first stage, the weight of the head from those of the last. Returns the number of layers of each
/// stage. ConfigError naming the value that is too large, and its maximum; `what`: what the number of layers
/// is, "model.n_layers".
std::vector<int64_t> divide_layers(int64_t layers, const char* what, int stages, const SplitWeights& weights);
/// The same for a decoder.
std::vector<DecoderPart> split_evenly(const DecoderConfig& config, int stages, const SplitWeights& weights);

/// Stages from the names of their modules (parallelism.module_fqns_per_model_part): the numbers of the
/// modules of each stage. ConfigError naming the first stage and module that is unknown, missing, listed
/// twice or out of order. `known`: the names, for messages. `check` (optional) is called for each module that
/// is in its place, with the stage and the stage's first module.
std::vector<ModelPart> split_modules(
    const std::vector<std::string>& modules, const std::string& known,
    const std::vector<std::vector<std::string>>& lists,
    FunctionRef<void(size_t stage, size_t first, size_t module)> check = [](size_t, size_t, size_t) {});
/// The same for a decoder, whose norm and output are in one stage.
std::vector<DecoderPart> split_by_names(const DecoderConfig& config,
                                        const std::vector<std::vector<std::string>>& lists);

}  // namespace coeus
