// SPDX-License-Identifier: Apache-2.0
// Random weights and norms of the layers whose gradients are checked.
#pragma once

#include "coeus/layers/norm.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <string>

namespace coeus::test {

/// For batches whose tokens are not read.
inline constexpr int64_t no_vocab = 1;

inline Param weight(const std::string& name, int64_t rows, int64_t cols, double std = 0.5) {
    return {.name = name, .shape = {rows, cols}, .init = Init::normal(std)};
}
// Norm weights are random here, so that a missing factor is detected.
inline Param norm_weight(const std::string& name, int64_t width) {
    return {.name = name, .shape = {width}, .init = Init::normal(1)};
}

inline constexpr double norm_eps = 0.05;  // large, so that a wrong one is detected
enum class NormKind { rms, layer, layer_without_weight };

inline std::unique_ptr<Norm> make_norm(Parameters& parameters, const std::string& name, int64_t width,
                                       NormKind kind, Output output = Output::kept, double offset = 0) {
    if (kind == NormKind::layer_without_weight) return std::make_unique<LayerNorm>(nullptr, norm_eps, output);
    const Storage& w = parameters.add(norm_weight(name, width));
    if (kind == NormKind::layer) return std::make_unique<LayerNorm>(&w, norm_eps, output);
    return std::make_unique<RmsNorm>(w, NormForm(norm_eps, offset), output);
}

}  // namespace coeus::test
