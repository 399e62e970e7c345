// SPDX-License-Identifier: Apache-2.0
// Quantize: which layers of a model are computed in 8 bits (torchtitan's model.converters), and how.
#pragma once

#include "coeus/choices/layer_filter.hpp"
#include "coeus/kernels/quantization.hpp"
#include "coeus/state/param.hpp"

#include <string>
#include <vector>

namespace coeus {

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
    bool emulate = false;  ///< linear layers are computed in software, also on a GPU that has 8-bit products

    bool any() const { return linear != Recipe::none || experts != Recipe::none; }
};

/// The recipe of a linear layer whose parameter has this name ("layers.0.attention.wq.weight") and the whole
/// shape [outputs, inputs]. Recipe::none if it stays in the compute type: by its name, or because a side is
/// not a multiple of 16 (MX: 32). A layer's name is its parameter without ".weight". Names of torchtitan's
/// newest version (newest_titan_name) count too.
Recipe recipe_of_linear(const Quantize& quantize, const std::string& parameter, int64_t outputs,
                        int64_t inputs);
/// The recipe of the experts' matrix of this name ("layers.1.moe.experts.w1"), each [outputs, inputs]. It has
/// the name of its module.
Recipe recipe_of_experts(const Quantize& quantize, const std::string& parameter, int64_t outputs,
                         int64_t inputs);

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

/// A matrix of a model: a linear layer, or those of all experts of a layer.
struct LayerMatrix {
    std::string parameter;
    int64_t outputs = 0, inputs = 0;  ///< the whole shape, of one expert
    bool of_experts = false;
    Recipe recipe = Recipe::none;  ///< as built
    bool always_stays = false;     ///< the model never computes it in 8 bits
    Split split = Split::none;     ///< how tensor-parallel ranks divide it
    int64_t number = 1;            ///< of matrices of this shape: the experts
};

/// Why a matrix is not quantized.
enum class Stays : uint8_t {
    no,         ///< it is quantized
    unasked,    ///< there is no recipe for linear layers, or for experts
    filtered,   ///< by a part of its name
    unlisted,   ///< no listed part is in its name
    side,       ///< a side is not a multiple of multiple_of()
    too_small,  ///< by auto_filter
    always      ///< the model never computes it in 8 bits
};

/// Matrices that differ only in the number of their layer.
struct MatrixGroup {
    std::string name;  ///< "layers.0-31.attention.wq"
    int64_t count = 0, outputs = 0, inputs = 0;
    bool of_experts = false;
    Recipe recipe = Recipe::none;
    Stays stays = Stays::no;
    std::string filter = {};  ///< the part of its name by which it is filtered
};
/// The groups, in the order of their first matrices.
std::vector<MatrixGroup> matrix_groups(const Quantize& quantize, const std::vector<LayerMatrix>& matrices);

/// A part of a name in Quantize that is in the name of none of the matrices that it is for.
struct UnusedPart {
    enum class List : uint8_t { filter_fqns, fqns, expert_fqns };
    List list;
    std::string part;
    std::string nearest;  ///< a name, or the end of one, that may be meant; "" if there is none
};
std::vector<UnusedPart> unused_parts(const Quantize& quantize, const std::vector<LayerMatrix>& matrices);

}  // namespace coeus
