// SPDX-License-Identifier: Apache-2.0
// What the layers of a model need for their work: the same layers run once with kernels that do nothing over
// arenas that only measure. What they would have used at most is what the run allocates; nothing is allocated
// later.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/layers/exchanges.hpp"
#include "coeus/layers/kv_cache.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/pipeline/executor.hpp"

namespace coeus {

/// Bytes per rank, and the arithmetic that goes with them.
struct LayerMemory {
    ExecutorMemory executor;          ///< frames of one micro-batch, and the slots of flows
    int64_t activations = 0;          ///< frames of all micro-batches alive
    int64_t activations_on_host = 0;  ///< inputs of blocks that are offloaded to the host of a GPU
    int64_t input_places = 0;         ///< places of the GPU that these inputs pass through
    int64_t temporaries = 0;
    int64_t workspace = 0;  ///< scratch of kernels
    /// FLOPs of a micro-batch's forward and backward, with what is computed again.
    double flops = 0;
};

/// ConfigError if activations of a micro-batch of such a shape are more bytes than 64 bits can count: an
/// upper bound, in floating point.
void require_countable(const DecoderConfig& model, const BatchShape& shape);
/// The larger of what training (a micro-batch) and validation need (shapes of whole sequences), on the mesh's
/// rank, whose stages these are. The shapes are countable.
LayerMemory measure_training(const Model& model, const Executor& executor, const BatchShape& training,
                             const BatchShape& validation, int threads, const Mesh& mesh,
                             const ExchangeOptions& exchanges = {}, Backend backend = Backend::cpu);
/// The same for a whole model on one rank, one micro-batch after the other.
LayerMemory measure_training(const Model& model, const BatchShape& training, const BatchShape& validation,
                             int threads, const Mesh& mesh = mesh_of_one(),
                             const ExchangeOptions& exchanges = {});
/// Forward only, for generation: `cache.sequences()` texts side by side, each of up to `cache.context()`
/// tokens. One at a time is read whole, then all continue by one token at a time. `cache`: without memory.
LayerMemory measure_generation(const Decoder& decoder, const KvCache& cache, int threads,
                               Backend backend = Backend::cpu);

}  // namespace coeus
