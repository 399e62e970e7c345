// SPDX-License-Identifier: Apache-2.0
// The stand-in as an NCCL that lets ranks share a GPU. Its order of operations is the one that
// NCCL_LAUNCH_ORDER_IMPLICIT asks for.
#include "gpu/nccl/nccl.hpp"
#include "stand_ins/nccl/nccl.hpp"

#include <cstdlib>
#include <string>

namespace coeus::test {

const NcclLibrary& the_nccl() {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    const bool ordered = std::string(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT")) != "0";
    nccl_stand_in_mode({.order = ordered ? NcclMode::Order::overlapped : NcclMode::Order::unordered,
                        .version = 23203,
                        .shared_gpu = true,
                        .bytes = int64_t(32) << 20});
    return nccl_stand_in();
}

}  // namespace coeus::test
