// SPDX-License-Identifier: Apache-2.0
// The roles of parameters, and their names in decks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace coeus {

/// What a parameter is in its model. Optimizers and their options are chosen by it.
enum class ParamRole : uint8_t {
    matrix,     ///< of a block: the weight of a linear layer
    embedding,  ///< a table of vectors, even if it is also the output projection
    output,     ///< the projection to the vocabulary
    norm,       ///< the weight of a normalisation
    bias,       ///< a vector that is added, also to scores
};
inline constexpr std::array param_roles = {ParamRole::matrix, ParamRole::embedding, ParamRole::output,
                                           ParamRole::norm, ParamRole::bias};

/// "" for no role.
constexpr std::string_view name_of(ParamRole role) {
    switch (role) {
        case ParamRole::matrix: return "matrix";
        case ParamRole::embedding: return "embedding";
        case ParamRole::output: return "output";
        case ParamRole::norm: return "norm";
        case ParamRole::bias: return "bias";
    }
    return "";
}
static_assert(name_of(ParamRole(param_roles.size())).empty(), "param_roles has all roles");

}  // namespace coeus
