// SPDX-License-Identifier: Apache-2.0
// NCCL's functions for the emulated GPU, over MPI, for tests. They are strict:
// - Calls of the ranks must agree in order, operation, count and type.
// - Operands are in place, or do not overlap.
// - Messages come in groups, and none is received where another one's data are.
// The call that breaks a rule returns an error. If detection needs other ranks, waiting for the stream throws
// an exception instead; a dead-lock of the ranks does so too. Calls of a communicator begin in the order in
// which they are given, on any streams. The host computes the sums, in the order of the ranks.
#pragma once

#include "coeus/comm/nccl.hpp"

#include <cstdint>
#include <vector>

namespace coeus::test {

/// What the stand-in does where NCCL's rules leave a choice. The same on all ranks.
struct NcclMode {
    /// The order of operations of different communicators of a rank (comm/launch_order.hpp).
    enum class Order { unordered, overlapped, serial };
    static constexpr int usual_blocks = 16;  ///< of an operation of a communicator without maxCTAs

    Order order = Order::unordered;
    bool random_sums = false;           ///< sums have another order of summands in each call, as with NVLS
    bool blocking_first_calls = false;  ///< a call that connects ranks waits for them on the host
    int resident_blocks = 0;            ///< room for blocks of operations on a GPU; 0: for all
    int version = 22809;                ///< as NCCL numbers it
    bool shared_gpu = false;  ///< all ranks of the world use one GPU, which versions before 2.30 refuse
    int64_t bytes = 0;        ///< of GPU memory that a communicator takes for each of its ranks
};
/// Called while no operation is under way.
void nccl_stand_in_mode(const NcclMode& mode);

/// Collective over the world in its first call.
const NcclLibrary& nccl_stand_in();
/// The same functions without what is collective, for a library that a program loads.
const NcclLibrary& nccl_functions();
/// Like a version before 2.18.
const NcclLibrary& nccl_stand_in_without_split();
/// maxCTAs of the live communicators, in ascending order; 0: not set.
std::vector<int> nccl_max_ctas();
/// The number of ids of the last communicator that was made with several.
int nccl_ids_used();
/// The number of splits until now.
int nccl_splits();
/// While `held`, no communicator starts: each call waits, as if NCCL lacked room on the GPU.
void nccl_hold_starts(bool held);
/// The number of calls that wait so.
int nccl_starts_held();
/// The number of communicators that are neither destroyed nor aborted, and the number of those aborted until
/// now.
int nccl_live();
int nccl_aborted();
/// The number of groups, and of calls outside of a group, until now.
int nccl_launches();
/// The number of sends and receives until now.
int nccl_messages();
/// Aborts all live communicators; may be called by any thread.
void nccl_abort_all();
/// The next call on this rank that gives work fails with `result`; the other calls of its group are dropped.
void nccl_fail_next(nccl::Result result);
/// The state that every communicator reports from now on.
void nccl_set_state(nccl::Result result);

}  // namespace coeus::test
