// SPDX-License-Identifier: Apache-2.0
// The ten steps of golden/models from the command line: a Hugging Face folder to start from, the batches as a
// token file, and the results read from metrics.jsonl.
#pragma once

#include "program/tiny_run.hpp"

namespace coeus::test {

/// Relative tolerances of loss, gradient norm and learning rate at each step.
struct GoldenTolerances {
    double loss, grad_norm, lr;
};
/// golden/README.md
inline constexpr GoldenTolerances golden_float32 = {1e-5, 5e-5, 1e-12}, golden_float64 = {1e-10, 1e-9, 1e-12};

/// Trains from the weights in `model`, in float32 unless `more` sets another type, and CHECKs the results
/// against expected.json in `reference`. `ranks` is as for run_coeus().
void check_golden_run(const std::filesystem::path& model, const std::filesystem::path& reference,
                      const Arguments& more, int ranks, const GoldenTolerances& allowed);

}  // namespace coeus::test
