// SPDX-License-Identifier: Apache-2.0
// Advice for a deck whose run does not fit into memory. Possible changes are planned, those that cost the
// least time first.
#pragma once

#include "coeus/engine/engine.hpp"

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace coeus {

/// A way to run the same steps in less memory.
struct Alternative {
    EngineOptions options;
    double cost = 0;                ///< roughly the percentage that it adds to a step's time
    std::vector<std::string> says;  ///< the settings that change, as written in a deck
};

/// All alternatives with the same number of ranks: activation checkpointing, smaller micro-batches with
/// accumulation, offloading to a GPU's host, shards instead of replicas, context and tensor parallelism, and
/// combinations of these. The cheapest is first.
std::vector<Alternative> alternatives(const ModelConfig& model, const EngineOptions& options);

/// Returns true if a run would accept the settings of an alternative on its ranks. Other alternatives are not
/// recommended.
using AdviceCheck = std::function<bool(const Alternative&)>;

/// One sentence: the cheapest alternative with which every rank fits; else the number of ranks on which the
/// run fits, with the settings for them; else what the smallest configuration needs. It is the same for every
/// options.rank. `host_limit_bytes` is the limit of host memory for a run on GPUs.
std::string memory_advice(const ModelConfig& model, const EngineOptions& options, int64_t limit_bytes,
                          int64_t host_limit_bytes = std::numeric_limits<int64_t>::max(),
                          const AdviceCheck& holds = {});

/// If at most three quarters of the memory are used and something is recomputed: the setting that recomputes
/// less and still fits. "" if there is none.
std::string spare_memory_advice(const ModelConfig& model, const EngineOptions& options, int64_t limit_bytes,
                                const AdviceCheck& holds = {});

}  // namespace coeus
