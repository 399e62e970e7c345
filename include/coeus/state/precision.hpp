// SPDX-License-Identifier: Apache-2.0
// Precision: which layers of a model are computed in 8 bits (torchtitan's model.converters), and with which
// recipe (kernels/quantization.hpp). It is a run's choice; models/precision_plan.hpp applies it. The types of
// weights, masters and gradients are in state_types.hpp.
#pragma once

#include "coeus/deck_names/precision_filter.hpp"
#include "coeus/kernels/quantization.hpp"

#include <string>
#include <vector>

namespace coeus {

/// What a run computes in 8 bits. A part of a name counts if it is anywhere in the name of a layer.
struct Precision {
    Recipe linear = Recipe::none;          ///< of linear layers
    std::vector<std::string> filter_fqns;  ///< names with one of these parts stay; may have auto_filter
    std::vector<std::string> fqns;         ///< if not empty: only names with one of these parts
    Recipe experts = Recipe::none;         ///< of the products of experts
    std::vector<std::string> expert_fqns;  ///< only modules whose names have one of these parts
    /// Weights with one scale are made in 8 bits from the masters once after each update. They are gathered
    /// and kept in 8 bits.
    bool gather_in_8_bits = false;
    bool emulate = false;  ///< linear layers are computed in software, also on a GPU that has 8-bit products

    bool any() const { return linear != Recipe::none || experts != Recipe::none; }
};

/// True if the recipe has a scale for each block of 32 elements (MX).
constexpr bool has_blocks(Recipe recipe) {
    return recipe == Recipe::mx_floor || recipe == Recipe::mx_rceil;
}
/// A recipe can compute a matrix whose sides are multiples of this.
constexpr int64_t multiple_of(Recipe recipe) {
    return has_blocks(recipe) ? 32 : 16;
}
/// "tensorwise", "MXFP8 (floor)"; "none".
const char* name_of(Recipe recipe);

}  // namespace coeus
