// SPDX-License-Identifier: Apache-2.0
// Which of our own kernels computes the backward of attention, for runs and for plans.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cuda {

/// True if the kernels by wgmma know the widths of keys and values: 64, 128, or keys of 192 and values of
/// 128.
constexpr bool wgmma_has_widths(const AttentionShape& s) {
    const int64_t keys = s.head_dim, values = s.value_width();
    return (keys == values && (keys == 64 || keys == 128)) || (keys == 192 && values == 128);
}

/// True if the backward by wgmma is for this processor and call: on Hopper, in bfloat16, for widths that it
/// knows.
inline bool wgmma_fits(const Processor& processor, Dtype type, const AttentionShape& s) {
    constexpr int hopper = 90;
    return processor.architecture == hopper && type == Dtype::bf16 && wgmma_has_widths(s);
}

}  // namespace coeus::cuda
