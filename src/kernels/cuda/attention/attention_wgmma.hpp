// SPDX-License-Identifier: Apache-2.0
// The backward of attention by Hopper's wgmma.
#pragma once

#include "attention_tiles.hpp"

namespace coeus::cuda {

/// True if these kernels know the widths of keys and values: 64, 128, or keys of 192 and values of 128.
constexpr bool wgmma_has_widths(const AttentionShape& s) {
    const int64_t keys = s.head_dim, values = s.value_width();
    return (keys == values && (keys == 64 || keys == 128)) || (keys == 192 && values == 128);
}

/// True if they compute the backward: on Hopper, for widths that they know and operands that have elements,
/// unless use_own_attention() asked for mma. If the program or the driver lacks what they need, the first
/// call warns with the reason, and mma computes all.
bool wgmma_computes(Exec& exec, const AttentionShape& s);

/// Like Cuda::attention_backward; requires tensor_cores_fit and wgmma_computes, and dq must not be
/// the memory of q.
void attention_backward_wgmma(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout,
                              const Statistics& statistics, Tensor q, Tensor k, Tensor v,
                              const AttentionShape& s, bool add_to_dq);

}  // namespace coeus::cuda
