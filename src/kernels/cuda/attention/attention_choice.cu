// SPDX-License-Identifier: Apache-2.0
// Whether wgmma or mma computes the backward of attention.
#include "../experts/grouped_gemm_wgmma.hpp"
#include "../ptx/tensor_map.hpp"
#include "attention_wgmma.hpp"
#include "coeus/base/log.hpp"
#include "coeus/kernels/own_attention.hpp"

namespace coeus::cuda {

namespace {

// Why the kernels cannot run on this Hopper; "" if they can. The program has all of its code for sm_90a or
// none.
std::string why_not(const Device& gpu) {
    if (std::string reason = why_no_wgmma(gpu); !reason.empty()) return reason;
    return has_tensor_maps() ? "" : "this driver does not describe matrices for TMA";
}

}  // namespace

bool wgmma_computes(Exec& exec, const AttentionShape& s) {
    if (!wgmma_fits(exec, Dtype::bf16, s) || s.batch == 0 || s.sequence == 0 || s.keys().count == 0)
        return false;
    std::optional<bool>& attention_by_wgmma = state_of(exec).attention_by_wgmma;
    if (!attention_by_wgmma) {
        const std::string reason = why_not(*exec.device);
        if (!reason.empty())
            log::warn("gradients of attention are computed by mma, not by wgmma: {}", reason);
        attention_by_wgmma = reason.empty();
    }
    return *attention_by_wgmma;
}

}  // namespace coeus::cuda

namespace coeus {

void choose_own_attention(Exec& exec, OwnAttention which) {
    std::optional<bool>& attention_by_wgmma = cuda::state_of(exec).attention_by_wgmma;
    attention_by_wgmma.reset();
    if (which == OwnAttention::mma) attention_by_wgmma = false;
}

}  // namespace coeus
