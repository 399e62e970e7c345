// SPDX-License-Identifier: Apache-2.0
// What a deck asks for, as options of the engine and of the learning-rate schedule.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/optim/lr_schedule.hpp"
#include "coeus/train/rank_device.hpp"

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

}  // namespace coeus
