// SPDX-License-Identifier: Apache-2.0
// The order in which NCCL runs the operations of several communicators that share a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace coeus {

enum class LaunchOrder {
    overlapped,  ///< an operation begins when those submitted before it have begun; they may run at once
    serial,      ///< an operation begins when those submitted before it have ended
    unordered,   ///< NCCL leaves the order to the GPU
};

/// What the order depends on; of the ranks' versions, the oldest.
struct LaunchFacts {
    int nccl = 0;                            ///< version as NCCL numbers it: 22809 for 2.28.9
    int driver = 0;                          ///< the CUDA version that the driver knows: 12090 for 12.9
    bool graphs = false;                     ///< steps run as CUDA graphs
    int communicators = 0;                   ///< that carry tensors on a rank
    int64_t max_ctas = 0;                    ///< most blocks of one operation; 0: no limit is known
    int multiprocessors = 0;                 ///< of the GPU
    std::optional<bool> asked_by_user = {};  ///< the user's NCCL_LAUNCH_ORDER_IMPLICIT, if it is set
};

struct LaunchChoice {
    LaunchOrder order = LaunchOrder::overlapped;
    bool implicit = true;  ///< the value that NCCL_LAUNCH_ORDER_IMPLICIT shall have
    std::string warning;   ///< what is lost or at risk, and what helps; empty: nothing
};

/// Decides whether NCCL shall order the operations. NCCL orders them if NCCL_LAUNCH_ORDER_IMPLICIT is 1, from
/// 2.26 on. How depends on versions (getImplicitOrder in NCCL's src/enqueue.cc, read
/// at 2.26.2, 2.27.3, 2.28.9 and 2.30.7): overlapped if the driver knows CUDA 12.3, in graphs if it is
/// NCCL 2.27 and CUDA 12.9; else serial. Without an order, ranks can wait for each other forever if the
/// operations that they have begun leave no room for others on the GPU. So NCCL may leave the order to the
/// GPU only if the operations of all communicators fit on it at once, each with a multiprocessor for each of
/// its blocks.
LaunchChoice launch_choice(const LaunchFacts& facts);

}  // namespace coeus
