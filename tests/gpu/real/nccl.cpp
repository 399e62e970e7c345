// SPDX-License-Identifier: Apache-2.0
// The NCCL that the program would load.
#include "gpu/nccl/nccl.hpp"

#include <cstdlib>

namespace coeus::test {

const NcclLibrary& the_nccl() {
    static const NcclLibrary nccl = [] {
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
        setenv("NCCL_NVLS_ENABLE", "0", 1);
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
        return load_nccl();
    }();
    return nccl;
}

}  // namespace coeus::test
