// SPDX-License-Identifier: Apache-2.0
// Evaluator: validation, the mean loss over held-out samples. Each sample counts once on any number of ranks.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/data/blend.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/metrics/metrics.hpp"

#include <optional>

namespace coeus {

/// Sum of the token losses / number of valid tokens, over validation.steps batches of every rank (-1: all
/// samples, none twice). Sample i is the same for any mesh; data rank r of R takes samples r, r + R, ...
/// Collective.
class Evaluator {
public:
    /// `sources`: the names of the stream's sources, each of which gets a loss of its own; empty: none does.
    Evaluator(const Config& config, SampleStream stream, std::vector<std::string> sources = {});
    /// Fills loss, tokens, seconds, tps and sources. All ranks call `goes_on` before each batch; if it
    /// returns false, on all ranks alike, the validation ends and nothing is returned. ConfigError if no
    /// token is a label.
    std::optional<ValidationMetrics> run(Engine& engine, FunctionRef<bool()> goes_on);
    /// The batches of a validation.
    int64_t batches(int64_t data_ranks) const;

private:
    SampleStream stream_;
    std::vector<std::string> sources_;
    int64_t sequences_, steps_, all_samples_;
    bool document_mask_;
    std::vector<int32_t> tokens_, labels_, document_start_;
};

}  // namespace coeus
