// SPDX-License-Identifier: Apache-2.0
// The options of optimizers and parameter groups, as in a deck.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

/// Options of one optimizer; each optimizer reads its own.
struct OptimizerOptions {
    std::string name = "AdamW";
    double lr = 8e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    std::vector<std::string> weight_decay_exclude;  ///< roles whose weights do not decay (param_groups.hpp)
    double momentum = 0.95;                         ///< for Muon
    bool nesterov = true;
    int64_t ns_steps = 5;  ///< Newton-Schulz iterations
    std::vector<double> ns_coefficients = {3.4445, -4.775, 2.0315};
    std::string adjust_lr_fn = "original";  ///< or match_rms_adamw, spectral_unclamped
    std::string implementation = "fused";   ///< or "fused_opt_states_bf16": Adam's moments in bfloat16
};

/// Parameters that are updated differently from the others: those whose name matches the pattern and that
/// have one of the roles.
struct ParamGroupOptions {
    std::string pattern;  ///< regular expression (ECMAScript) that is searched in the name; empty: any name
    std::vector<std::string> roles;  ///< matrix, embedding, output, norm, bias; empty: any
    OptimizerOptions optimizer;
    /// True: the group names its optimizer, which updates all parameters of the group. False: optimizer.name
    /// is the optimizer of the whole deck, and its substitute updates the parameters that it is not for.
    bool names_optimizer = false;
};

}  // namespace coeus
