// SPDX-License-Identifier: Apache-2.0
// What to change in a deck whose run does not fit into memory: found by planning what could be changed, the
// cheapest in time first.
#pragma once

#include "coeus/engine/engine.hpp"

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace coeus {

/// One way to run the same steps in less memory.
struct Alternative {
    EngineOptions options;
    double cost = 0;                ///< a rough share of a step's time that it adds, in percent
    std::vector<std::string> says;  ///< the settings that change, as in a deck
};

/// All there are with as many ranks: activation checkpointing, smaller micro-batches with accumulation,
/// offloading to a GPU's host, shards instead of replicas, context and tensor parallelism, and these
/// together. The cheapest first.
std::vector<Alternative> alternatives(const DecoderConfig& model, const EngineOptions& options);

/// Whether a run accepts the settings of an alternative, on its ranks. Advice that it refuses is not given.
using AdviceCheck = std::function<bool(const Alternative&)>;

/// One sentence: the cheapest alternative whose every rank fits; else on how many ranks a run fits, with the
/// settings for these; else what the smallest needs. The same for each options.rank. `host_limit_bytes`: of
/// what a GPU's run has in host memory.
std::string memory_advice(const DecoderConfig& model, const EngineOptions& options, int64_t limit_bytes,
                          int64_t host_limit_bytes = std::numeric_limits<int64_t>::max(),
                          const AdviceCheck& holds = {});

/// If at most three quarters of the memory are used and something is recomputed: the setting that recomputes
/// less and still fits. "" if there is none.
std::string spare_memory_advice(const DecoderConfig& model, const EngineOptions& options, int64_t limit_bytes,
                                const AdviceCheck& holds = {});

}  // namespace coeus
