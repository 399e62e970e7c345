// SPDX-License-Identifier: Apache-2.0
// What a deck asks for, in the terms of the other parts; and what a run says of itself before it starts.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/optim/lr_schedule.hpp"
#include "coeus/train/device_setup.hpp"

#include <string>
#include <vector>

namespace coeus {

/// ConfigError where the degrees of the mesh do not divide the model (naming option, rule and valid values),
/// or as pipeline_from_deck() says: a dry run, `coeus info` and a run refuse the same. Where NCCL carries
/// tensors, it takes all calls at once, and wants those of several communicators in the same order on every
/// rank: streams need no threads then. Steps are given as graphs where the host has no part in them.
EngineOptions engine_options(const Config& config, const DecoderConfig& model, const MeshShape& mesh,
                             int rank, int threads, const RankTransport& transport);
/// For planning, as if each rank had a GPU of its own and NCCL were found.
EngineOptions engine_options(const Config& config, const DecoderConfig& model, const MeshShape& mesh,
                             int rank, int threads);
/// Adds what was cut to `notices`. `begins`: the steps that the run has taken where the schedule begins; as
/// long as the deck gives it no length it ends with the run.
LrSchedule schedule_from_deck(const Config& config, std::vector<std::string>* notices, int64_t begins = 0);

/// Lines on mesh, model, batches and memory, the same for a run and a dry run. `memory_limit`: bytes that a
/// rank may take, where that is known.
std::vector<std::string> describe_run(const Config& config, const MeshShape& mesh, const Engine& engine,
                                      std::optional<int64_t> memory_limit);
/// As if a rank were alone on this host: its memory, or that of its first GPU; none where a run is planned
/// for a GPU that is not here.
std::optional<int64_t> memory_limit_here(Backend backend);

/// Validates deck and mesh for any number of ranks, and says in lines what would run; runs nothing.
/// ConfigError as a run would have.
std::vector<std::string> dry_run_lines(const CommandLine& command_line, int ranks);
/// `coeus train --dry_run`: logs them, for the ranks that the command line names, or else `world_size`.
void dry_run(const CommandLine& command_line, int world_size);

}  // namespace coeus
