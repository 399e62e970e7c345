// SPDX-License-Identifier: Apache-2.0
// What a deck says of its optimizers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

/// Options of one optimizer; each reads what is its own.
struct OptimizerOptions {
    std::string name = "AdamW";
    double lr = 8e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    std::vector<std::string> weight_decay_exclude;  ///< roles that do not decay (param_groups.hpp)
    double momentum = 0.95;                         ///< of Muon
    bool nesterov = true;
    int64_t ns_steps = 5;  ///< iterations of Newton and Schulz
    std::vector<double> ns_coefficients = {3.4445, -4.775, 2.0315};
    std::string adjust_lr_fn = "original";  ///< match_rms_adamw, spectral_unclamped
    std::string implementation = "fused";   ///< "fused_opt_states_bf16": Adam's moments in bfloat16
};

/// Parameters that are updated otherwise than the others: those whose name a pattern is found in, and which
/// have one of the roles.
struct ParamGroupOptions {
    std::string pattern;             ///< regular expression (ECMAScript); empty: any name
    std::vector<std::string> roles;  ///< matrix, embedding, output, norm, bias; empty: any
    OptimizerOptions optimizer;
    /// The group itself says which optimizer, which then updates all that the group takes; else
    /// optimizer.name is that of all parameters, and as there another one updates those it is not for.
    bool names_optimizer = false;
};

}  // namespace coeus
