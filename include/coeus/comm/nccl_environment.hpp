// SPDX-License-Identifier: Apache-2.0
// The environment variables of NCCL that Coeus sets. NCCL reads them when a process makes its first
// communicator. What the user has set stays as it is.
#pragma once

#include <optional>
#include <string>

namespace coeus {

/// The user's variable that lets NCCL sum in NVLink's switches (NVLS): "NCCL_NVLS_ENABLE = 1", or "NCCL_ALGO
/// = NVLS"; empty if there is none. Such sums may have other bits in each call (NVIDIA/nccl#1497).
std::string nvls_asked_by_user();
/// From now on NCCL does not use NVLS, unless the user asks for it (NCCL_NVLS_ENABLE = 0). Versions before
/// 2.17 have no NVLS and do not know the variable.
void turn_nvls_off();

/// The user's NCCL_LAUNCH_ORDER_IMPLICIT; not set: none.
std::optional<bool> launch_order_asked_by_user();
/// From now on NCCL orders the operations of several communicators that share a GPU, or does not, unless the
/// user has set it. Versions before 2.26 cannot, and do not know the variable.
void set_launch_order(bool implicit);

/// Whether the user's NCCL_MULTI_RANK_GPU_ENABLE lets ranks share a GPU. Versions before 2.30 cannot, and do
/// not know the variable.
bool shared_gpus_allowed_by_user();
constexpr int first_nccl_with_shared_gpus = 23000;

/// The user's NCCL_MAX_CTAS, which NCCL uses for all communicators instead of their own limits; 0: none.
int max_ctas_asked_by_user();

}  // namespace coeus
