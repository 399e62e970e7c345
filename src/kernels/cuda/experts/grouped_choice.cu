// SPDX-License-Identifier: Apache-2.0
#include "../ptx/tensor_map.hpp"
#include "coeus/base/log.hpp"
#include "coeus/device/device.hpp"
#include "grouped_choice.hpp"
#include "grouped_gemm_wgmma.hpp"

#include <string>

namespace coeus::cuda {

GroupedChoice grouped_choice(const Device& gpu, std::optional<ExpertsKernel> asked) {
    const std::string by_whom = asked ? fmt::format("kernels.experts = \"{}\": ", name_of(*asked)) : "";
    const auto warn = [&](const char* kernel, const std::string& reason) {
        log::warn("{}products of experts are computed by {}: {}", by_whom, kernel, reason);
    };
    if (asked == ExpertsKernel::mma) return {};
    const std::string reason = why_no_wgmma(gpu);
    if (!reason.empty()) {
        if (asked || has_wgmma(gpu)) warn("mma, not by wgmma", reason);
        return {};
    }
    if (asked == ExpertsKernel::wgmma) return {ExpertsKernel::wgmma, true};
    if (has_tensor_maps()) return {ExpertsKernel::tma, asked.has_value()};
    warn("wgmma without TMA", "this driver does not describe matrices for TMA");
    return {ExpertsKernel::wgmma, asked.has_value()};
}

}  // namespace coeus::cuda
