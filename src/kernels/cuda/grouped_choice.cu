// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/log.hpp"
#include "coeus/device/device.hpp"
#include "grouped_choice.hpp"
#include "grouped_gemm_wgmma.hpp"
#include "tensor_map.hpp"

#include <cstdlib>
#include <string>
#include <string_view>

namespace coeus::cuda {

GroupedChoice grouped_choice(const Device& gpu) {
    const char* const text = std::getenv("COEUS_EXPERTS_WGMMA");
    const std::string_view asked = text ? text : "";
    const std::string by_whom = asked.empty() ? "" : fmt::format("COEUS_EXPERTS_WGMMA={}: ", asked);
    const auto warn = [&](const char* kernel, const std::string& reason) {
        log::warn("{}products of experts are computed by {}: {}", by_whom, kernel, reason);
    };
    if (asked == "0") return {};
    if (!asked.empty() && asked != "1" && asked != "tma")
        log::warn(
            "{}this is not a kernel for products of experts, and has no effect; choices are 0 (mma), 1 "
            "(wgmma) and tma (wgmma with copies by TMA)",
            by_whom);
    const bool is_choice = asked == "1" || asked == "tma";
    const std::string reason = why_no_wgmma(gpu);
    if (!reason.empty()) {
        if (is_choice || has_wgmma(gpu)) warn("mma, not by wgmma", reason);
        return {};
    }
    if (asked == "1") return {GroupedKernel::wgmma, true};
    if (has_tensor_maps()) return {GroupedKernel::tma, is_choice};
    warn("wgmma without TMA", "this driver does not describe matrices for TMA");
    return {GroupedKernel::wgmma, is_choice};
}

}  // namespace coeus::cuda
