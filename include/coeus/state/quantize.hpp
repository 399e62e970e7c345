// SPDX-License-Identifier: Apache-2.0
// Quantize: which layers of a model are computed in 8 bits (torchtitan's model.converters), and how.
#pragma once

#include "coeus/kernels/quantization.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The filter that leaves out small layers, which would not be faster in 8 bits.
inline constexpr const char* auto_filter = "auto_filter_small_kn";

/// The options of a run.
struct Quantize {
    Recipe linear = Recipe::none;          ///< of linear layers
    std::vector<std::string> filter_fqns;  ///< names with one of these parts stay; may have auto_filter
    std::vector<std::string> fqns;         ///< if not empty: only names with one of these parts
    Recipe experts = Recipe::none;         ///< of the products of experts
    std::vector<std::string> expert_fqns;  ///< only modules whose names have one of these parts
    /// Weights with one scale are quantized from the masters once after each update, gathered and kept in 8
    /// bits.
    bool gather_in_8_bits = false;
    bool emulate = false;  ///< products are computed in software, also on a GPU that has 8-bit products

    bool any() const { return linear != Recipe::none || experts != Recipe::none; }
};

/// The recipe of a linear layer whose parameter has this name ("layers.0.attention.wq.weight") and the whole
/// shape [outputs, inputs]. Recipe::none if it stays in the compute type: by its name, or because a side is
/// not a multiple of 16 (MX: 32).
Recipe recipe_of_linear(const Quantize& quantize, const std::string& parameter, int64_t outputs,
                        int64_t inputs);
/// The recipe of the experts' matrix of this name ("layers.1.moe.experts.w1"), each [outputs, inputs].
Recipe recipe_of_experts(const Quantize& quantize, const std::string& parameter, int64_t outputs,
                         int64_t inputs);

}  // namespace coeus
