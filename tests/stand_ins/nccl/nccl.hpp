// SPDX-License-Identifier: Apache-2.0
// NCCL's functions for the emulated GPU, over MPI, for tests. They are strict: what ranks give must match in
// order, operation, count and type, operands are in place or apart, and messages come in groups. What breaks
// a rule is an error of the call or, where it takes the other ranks to see it, an exception from whoever
// waits for the stream; so are ranks that wait for each other for good. Calls of a communicator begin in the
// order in which they are given, whatever the streams. Sums are the host's: in the order of the ranks.
#pragma once

#include "coeus/comm/nccl.hpp"

namespace coeus::test {

/// Collective over the world, at its first call.
const NcclLibrary& nccl_stand_in();
/// As one before 2.18.
const NcclLibrary& nccl_stand_in_without_split();
/// Splits until now.
int nccl_splits();
/// Communicators that were made and neither destroyed nor aborted, and those aborted until now.
int nccl_live();
int nccl_aborted();
/// Groups, and calls outside of one, until now.
int nccl_launches();
/// Aborts those that are live, by whichever thread.
void nccl_abort_all();
/// The next call that gives work fails so, on this rank; what has not been given is forgotten.
void nccl_fail_next(nccl::Result result);
/// What every communicator says of itself when asked, until it is told otherwise.
void nccl_set_state(nccl::Result result);

}  // namespace coeus::test
