// SPDX-License-Identifier: Apache-2.0
// What a deck asks for, as options of the engine and of the learning-rate schedule.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/optim/lr_schedule.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The engine's options for this deck, model and rank. ConfigError if the degrees of the mesh do not divide
/// the model's dimensions (the message has option, rule and valid values), if 8-bit products do not fit model
/// and mesh, and as pipeline_from_deck(): a dry run, `coeus info` and a run refuse the same decks. With NCCL,
/// streams have no threads of their own: NCCL queues all calls at once, and needs those of several
/// communicators in the same order on every rank. Steps are run as CUDA graphs if the host takes no part in
/// them. Chunks on GPUs are the smallest (session/chunk_choice.hpp).
EngineOptions engine_options(const Config& config, const ModelConfig& model, const MeshShape& mesh, int rank,
                             const RankMachine& machine);
/// The same for an engine that only evaluates and scores tokens, on batches of validation.
EngineOptions evaluation_options(const Config& config, const ModelConfig& model, const MeshShape& mesh,
                                 int rank, const RankMachine& machine);
/// Processor::cudnn_bytes on a GPU, if cuDNN is found.
int64_t cudnn_bytes(const Config& config);
/// For planning: as if each rank had a GPU of its own and NCCL and cuDNN were installed. `architecture`: of
/// the GPU for which is planned; 0: not known.
EngineOptions planned_options(const Config& config, const ModelConfig& model, const MeshShape& mesh,
                              int architecture, int threads = 1, int rank = 0);
/// The learning-rate schedule of this deck. Appends a line to `notices` for each phase that was shortened.
/// `begins`: the step of the run at which the schedule begins. If the deck gives no length for the schedule,
/// it ends with the run.
LrSchedule schedule_from_deck(const Config& config, std::vector<std::string>* notices, int64_t begins = 0);

}  // namespace coeus
