// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982): momentum, orthogonalised by Newton and
// Schulz's iteration, for matrices.
#pragma once

#include "coeus/optim/optimizer.hpp"

namespace coeus {

std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options, uint64_t seed, size_t group);

/// x[rows, cols] (f64, f32, bf16), divided by its Frobenius norm, goes through `steps` iterations
///   G = X X^T,   X = a X + (b G + c G G) X,   coefficients (a, b, c)
/// in place, or with X^T X where it has more rows than columns. Afterwards its singular values are near 1:
/// with the usual coefficients within 0.68 and 1.2 for those that were not tiny.
void newton_schulz(Exec& exec, const Kernels& kernels, Tensor x, int64_t steps,
                   const std::vector<double>& coefficients, Arena& scratch);

/// What the learning rate of a matrix [rows, cols] is multiplied by. `adjust`: "original",
/// "match_rms_adamw" or "spectral_unclamped".
double muon_factor(const std::string& adjust, int64_t rows, int64_t cols);

}  // namespace coeus
