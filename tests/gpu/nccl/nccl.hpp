// SPDX-License-Identifier: Apache-2.0
// NCCL for tests of ranks that share a GPU: the library itself, or its stand-in on the emulated GPU.
#pragma once

#include "coeus/comm/nccl.hpp"

namespace coeus::test {

/// Loaded once. Collective in its first call, which sets NCCL_MULTI_RANK_GPU_ENABLE and NCCL_NVLS_ENABLE.
const NcclLibrary& the_nccl();

}  // namespace coeus::test
