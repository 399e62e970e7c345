// SPDX-License-Identifier: Apache-2.0
// The ten steps of golden/models from the command line: a Hugging Face folder as start, the batches as a
// token file, the figures read off metrics.jsonl.
#pragma once

#include "program/tiny_run.hpp"

namespace coeus::test {

/// Relative; of loss, gradient norm and learning rate at each step.
struct GoldenTolerances {
    double loss, grad_norm, lr;
};
/// golden/README.md
inline constexpr GoldenTolerances golden_float32 = {1e-5, 5e-5, 1e-12}, golden_float64 = {1e-10, 1e-9, 1e-12};

/// Trains from the weights in `model`, in float32 unless `more` says otherwise, and CHECKs the figures
/// against expected.json in `reference`. `ranks` as for run_coeus().
void check_golden_run(const std::filesystem::path& model, const std::filesystem::path& reference,
                      const Arguments& more, int ranks, const GoldenTolerances& allowed);

}  // namespace coeus::test
