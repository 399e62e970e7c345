// SPDX-License-Identifier: Apache-2.0
// LayerMemory: the memory that the layers of a model need. The layers run once with kernels that do nothing,
// on arenas that only measure. The run allocates the peaks that were measured; nothing is allocated later.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "coeus/layers/exchanges/exchanges.hpp"
#include "coeus/layers/kv_cache.hpp"
#include "coeus/models/model.hpp"
#include "coeus/pipeline/executor.hpp"

namespace coeus {

/// Bytes per rank, and the FLOPs of the same work.
struct LayerMemory {
    ExecutorMemory executor;          ///< frames of one micro-batch, and slots of flows
    int64_t activations = 0;          ///< frames of all micro-batches that are alive
    int64_t activations_on_host = 0;  ///< inputs of blocks that a GPU offloads to its host
    int64_t input_places = 0;         ///< memory of the GPU through which these inputs pass
    int64_t temporaries = 0;
    int64_t paired_temporaries = 0;  ///< of the one of a pair that begins last
    TokenRooms tokens;               ///< of other ranks, if their exchange overlaps with products
    int64_t workspace = 0;           ///< scratch memory of kernels
    /// FLOPs of a micro-batch's forward and backward, including recomputation.
    double flops = 0;
    /// The calls of attention that cuDNN may compute, each once.
    std::vector<AttentionCall> attention;
};

/// What the layers of a run compute, and how. The shapes are those of whole sequences and must be countable.
struct TrainingPasses {
    BatchShape training;    ///< a micro-batch; sequences 0: the model is only evaluated
    BatchShape validation;  ///< sequences 0: no validation
    Processor processor;
    ExchangeOptions exchanges = {};
    Backend backend = Backend::cpu;
    bool overlap_pairs = false;  ///< see EngineOptions
    /// Columns of the logits that are asked of one token of each sequence of validation; 0: none are.
    int64_t predicted_columns = 0;
};
/// The larger of what training and validation need, for the stages of the mesh's rank.
LayerMemory measure_training(const Model& model, const Executor& executor, const TrainingPasses& passes,
                             const Mesh& mesh);
/// The same for a whole model on one rank, one micro-batch after the other.
LayerMemory measure_training(const Model& model, const BatchShape& training, const BatchShape& validation,
                             const Processor& processor, const Mesh& mesh = mesh_of_one(),
                             const ExchangeOptions& exchanges = {});
/// The memory for generation with this rank's part of a language model. The last stage writes `columns`
/// columns of logits. Texts have up to `cache.context()` tokens each.
/// Each text is first read whole, one at a time; then up to `texts_at_once` continue by one token at a time.
/// Micro-batches have as many rows as tensor-parallel ranks can divide. `cache` needs no memory. `mesh`: see
/// measure_training().
LayerMemory measure_generation(const Model& model, const Executor& executor, int64_t columns,
                               const KvCache& cache, int64_t texts_at_once, const Processor& processor,
                               Backend backend, const Mesh& mesh);
/// The same for a whole model on one rank, with the CPU's kernels, and all texts at once.
LayerMemory measure_generation(const Model& model, int64_t vocab, const KvCache& cache,
                               const Processor& processor);

}  // namespace coeus
