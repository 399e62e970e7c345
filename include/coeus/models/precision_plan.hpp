// SPDX-License-Identifier: Apache-2.0
// Which matrices of a model a run's Precision computes in 8 bits, and why the others stay in the compute
// type.
#pragma once

#include "coeus/state/param.hpp"
#include "coeus/state/precision.hpp"

#include <string>
#include <vector>

namespace coeus {

/// The recipe of a linear layer whose parameter has this name ("layers.0.attention.wq.weight") and the whole
/// shape [outputs, inputs]. Recipe::none if it stays in the compute type: by its name, or because a side is
/// not a multiple of 16 (MX: 32). A layer's name is its parameter without ".weight". Names of torchtitan's
/// newest version (newest_titan_name) count too.
Recipe recipe_of_linear(const Precision& precision, const std::string& parameter, int64_t outputs,
                        int64_t inputs);
/// The recipe of the experts' matrix of this name ("layers.1.moe.experts.w1"), each [outputs, inputs]. It has
/// the name of its module.
Recipe recipe_of_experts(const Precision& precision, const std::string& parameter, int64_t outputs,
                         int64_t inputs);

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

/// Why a matrix is not computed in 8 bits.
enum class Stays : uint8_t {
    no,         ///< it is computed in 8 bits
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
std::vector<MatrixGroup> matrix_groups(const Precision& precision, const std::vector<LayerMatrix>& matrices);

/// A part of a name in a Precision that is in the name of none of the matrices that it is for.
struct UnusedPart {
    enum class List : uint8_t { filter_fqns, fqns, expert_fqns };
    List list;
    std::string part;
    std::string nearest;  ///< a name, or the end of one, that may be meant; "" if there is none
};
std::vector<UnusedPart> unused_parts(const Precision& precision, const std::vector<LayerMatrix>& matrices);

}  // namespace coeus
