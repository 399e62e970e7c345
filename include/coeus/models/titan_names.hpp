// SPDX-License-Identifier: Apache-2.0
// Parameters' names in torchtitan of 2026. Coeus has the names of 2025 (Param::name).
#pragma once

#include <string>

namespace coeus {

/// The name of a parameter in torchtitan of 2026: "lm_head.weight" for "output.weight",
/// "layers.0.attention.qkv_linear.wq.weight", "layers.1.moe.routed_experts.inner_experts.w1_EFD". Most names
/// are the same.
std::string newest_titan_name(const std::string& parameter);

}  // namespace coeus
