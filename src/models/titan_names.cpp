// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/titan_names.hpp"

namespace coeus {

namespace {

// The letters of the extents of a tensor of experts.
std::string extents_of(const std::string& weight) {
    if (weight == "w2" || weight == "mlp2_weight") return "_EDF";
    if (weight == "mlp1_weight") return "_EGD";
    if (weight == "mlp1_bias") return "_EG";
    if (weight == "mlp2_bias") return "_ED";
    return "_EFD";
}

}  // namespace

std::string newest_titan_name(const std::string& parameter) {
    if (parameter == "output.weight") return "lm_head.weight";
    if (parameter.ends_with("moe.expert_bias")) return parameter + "_E";
    std::string name = parameter;
    const std::string attention = "attention.", experts = "moe.experts.";
    for (const char* matrix : {"wq.", "wk.", "wv."})
        if (const size_t at = name.find(attention + matrix); at != std::string::npos)
            return name.insert(at + attention.size(), "qkv_linear.");
    if (const size_t at = name.find(experts); at != std::string::npos)
        return name.replace(at, experts.size(), "moe.routed_experts.inner_experts.") +
               extents_of(name.substr(name.rfind('.') + 1));
    return name;
}

}  // namespace coeus
