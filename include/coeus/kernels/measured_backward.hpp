// SPDX-License-Identifier: Apache-2.0
// The choice between cuDNN's backward of attention and our own by wgmma: measured once for each call, and
// kept beside the algorithms of products.
#pragma once

#include "coeus/kernels/cudnn.hpp"

#include <optional>
#include <string>

namespace coeus {

/// Which backward is faster for a call.
struct MeasuredBackward {
    bool is_own = false;  ///< our own
    /// "measured: 1.40 ms, cuDNN's 1.52 ms", or "as kept in FILE"
    std::string text;
};
/// True if cuDNN computes this backward, and our kernels by wgmma would, too. Requires use_cudnn.
bool has_two_backwards(Exec& exec, const AttentionCall& call);
/// The kept choice for calls like this one. If there is none, times both on memory of its own, which it then
/// gives back, and keeps the choice; ours must be 2 % faster to be chosen. Nothing if the call does not have
/// two backwards, or nothing is kept (see ProductOptions::folder), or the GPU has no room: then cuDNN's
/// counts. The Exec has its workspace. Requires use_cudnn.
std::optional<MeasuredBackward> measured_backward(Exec& exec, const AttentionCall& call);
/// From now on our own kernels compute calls like this one, although cuDNN could; choose_kernel() gives this
/// reason. Requires use_cudnn.
void take_own_backward(Exec& exec, const AttentionCall& call, const std::string& why);

}  // namespace coeus
