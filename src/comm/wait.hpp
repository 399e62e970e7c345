// SPDX-License-Identifier: Apache-2.0
// Waits for messages without holding a core, since waiting threads share their cores with those that compute.
// (Barriers, broadcasts and sums of integers wait inside MPI; only the main thread does that.)
#pragma once

#include <mpi.h>

#include <span>

namespace coeus {

/// Returns when all requests have completed; they are then MPI_REQUEST_NULL. Tests them, and after a while
/// sleeps between tests. MPI_Wait is not used: if two threads of a process wait inside Open MPI 4.1, the one
/// that completes the other's request wakes it, and the woken thread then spins until the first one is done.
/// On one core that costs a time slice, 3 ms, in each exchange (`ompi_sync_wait_mt`, `WAIT_SYNC_RELEASE`).
/// The watchdog recognises by the function's name (`waiting_function`) that a thread is in MPI. Throws
/// SystemError.
[[gnu::noinline]] void wait_all(std::span<MPI_Request> requests);
void wait_for(MPI_Request& request);

}  // namespace coeus
