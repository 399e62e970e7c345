// SPDX-License-Identifier: Apache-2.0
// What a deck can say of optimizers: their names, their options, and the groups of parameters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// Options of one optimizer; each optimizer reads its own.
struct OptimizerOptions {
    std::string name = "AdamW";
    double lr = 8e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    std::vector<std::string> weight_decay_exclude;  ///< role_names() of weights that do not decay
    double momentum = 0.95;                         ///< for Muon
    bool nesterov = true;
    int64_t ns_steps = 5;  ///< Newton-Schulz iterations
    std::vector<double> ns_coefficients = {3.4445, -4.775, 2.0315};
    std::string adjust_lr_fn = "original";  ///< or match_rms_adamw, spectral_unclamped
    std::string implementation = "fused";   ///< or "fused_opt_states_bf16": Adam's moments in bfloat16
};

/// One of the optimizers. optim/optimizer.cpp makes it.
struct OptimizerKind {
    std::string_view name;
    std::span<const std::string_view> options;  ///< that it reads and not all optimizers do
    std::string_view substitute;                ///< updates what it is not for; empty: it is for all
    bool works_in_gradients = false;  ///< makes its updates in the memory of the gradients, in float32
};
inline constexpr std::array<std::string_view, 4> options_of_adam = {"beta1", "beta2", "eps",
                                                                    "implementation"};
inline constexpr std::array<std::string_view, 5> options_of_muon = {"momentum", "nesterov", "ns_steps",
                                                                    "ns_coefficients", "adjust_lr_fn"};
inline constexpr std::array optimizer_kinds = {
    OptimizerKind{"AdamW", options_of_adam, ""},
    OptimizerKind{"Adam", options_of_adam, ""},
    OptimizerKind{"Muon", options_of_muon, "AdamW", true},
};

/// The names of optimizer_kinds.
std::vector<std::string> optimizer_names();
/// True if an optimizer reads an option ("momentum").
bool reads_option(const std::string& optimizer, const std::string& option);
/// The optimizer for the parameters that the given one is not for; "" if it is for all.
std::string substitute_of(const std::string& optimizer);
/// True if an optimizer makes its updates in the memory of the gradients, which must be float32 for it.
bool works_in_gradients(const std::string& optimizer);

/// Parameters that are updated differently from the others: those whose name matches the pattern and that
/// have one of the roles.
struct ParamGroupOptions {
    std::string pattern;  ///< regular expression (ECMAScript) that is searched in the name; empty: any name
    std::vector<std::string> roles;  ///< some of role_names(); empty: any
    OptimizerOptions optimizer;
    /// True: the group names its optimizer, which updates all parameters of the group. False: optimizer.name
    /// is the optimizer of the whole deck, and its substitute updates the parameters that it is not for.
    bool names_optimizer = false;
};
/// A deck has at most this many groups. The parameters in none of them are a group too.
constexpr size_t most_param_groups = 31;

/// The names of param_roles: "matrix", "embedding", ...
std::vector<std::string> role_names();

}  // namespace coeus
