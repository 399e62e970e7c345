// SPDX-License-Identifier: Apache-2.0
// Validation: the mean loss over held-out samples, each counted once whatever the number of ranks.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/data/sampler.hpp"
#include "coeus/train/config.hpp"
#include "coeus/train/engine.hpp"
#include "coeus/train/metrics.hpp"

namespace coeus {

/// Sum of the token losses / number of valid tokens, over validation.steps batches of all ranks (-1: all
/// samples). Sample i is the same for any number of ranks; rank r of R takes samples r, r + R, ...
/// Collective.
class Evaluator {
public:
    Evaluator(const Config& config, const Sampler& sampler);
    /// Fills loss, tokens, seconds and tps.
    ValidationMetrics run(Engine& engine, const Communicator& data_ranks);

private:
    const Sampler* sampler_;
    int64_t sequences_, steps_;
    bool document_mask_;
    std::vector<int32_t> tokens_, labels_, document_start_;
};

}  // namespace coeus
