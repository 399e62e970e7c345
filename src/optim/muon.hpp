// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982), for matrices: momentum that is orthogonalised
// by Newton-Schulz iterations.
#pragma once

#include "coeus/optim/optimizer.hpp"

namespace coeus {

std::unique_ptr<Optimizer> make_muon(const OptimizerOptions& options, uint64_t seed, size_t group);

/// Orthogonalises x[rows, cols] (f64, f32 or bf16) in place: divides it by its Frobenius norm, then does
/// `steps` iterations of
///   G = X X^T,   X = a X + (b G + c G G) X,   with the coefficients (a, b, c),
/// or with X^T X if it has more rows than columns. Afterwards its singular values are near 1: with the usual
/// coefficients between 0.68 and 1.2 for those that were not tiny.
void newton_schulz(Exec& exec, const Kernels& kernels, Tensor x, int64_t steps,
                   const std::vector<double>& coefficients, Arena& scratch);

/// The factor of the learning rate for a matrix [rows, cols]. `adjust`: "original", "match_rms_adamw" or
/// "spectral_unclamped"; ConfigError for any other.
double muon_factor(const std::string& adjust, int64_t rows, int64_t cols);

}  // namespace coeus
