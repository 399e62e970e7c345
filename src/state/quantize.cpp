// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/quantize.hpp"

#include <algorithm>

namespace coeus {

namespace {

bool has_a_part(const std::string& name, const std::vector<std::string>& parts) {
    return std::ranges::any_of(parts,
                               [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

// True if a recipe can divide both sides of a matrix.
bool fits(Recipe recipe, int64_t outputs, int64_t inputs) {
    const int64_t multiple = recipe == Recipe::mx_floor || recipe == Recipe::mx_rceil ? 32 : 16;
    return outputs % multiple == 0 && inputs % multiple == 0;
}

}  // namespace

Recipe recipe_of_linear(const Quantize& quantize, const std::string& parameter, int64_t outputs,
                        int64_t inputs) {
    const std::string name = parameter.substr(0, parameter.rfind(".weight"));
    if (!fits(quantize.linear, outputs, inputs) || has_a_part(name, quantize.filter_fqns))
        return Recipe::none;
    if (!quantize.fqns.empty() && !has_a_part(name, quantize.fqns)) return Recipe::none;
    return quantize.linear;
}

Recipe recipe_of_experts(const Quantize& quantize, const std::string& parameter, int64_t outputs,
                         int64_t inputs) {
    const std::string module = parameter.substr(0, parameter.rfind('.'));
    if (!fits(quantize.experts, outputs, inputs) || !has_a_part(module, quantize.expert_fqns))
        return Recipe::none;
    return quantize.experts;
}

}  // namespace coeus
