// SPDX-License-Identifier: Apache-2.0
// Waiting for messages without holding a core: a rank's threads that wait share their cores with those that
// compute. (Barriers, broadcasts and sums of whole numbers wait inside MPI: only the main thread does that.)
#pragma once

#include <mpi.h>

#include <span>

namespace coeus {

/// Until all have ended; they are then MPI_REQUEST_NULL. Tests, and after a while sleeps between tests.
/// Not by MPI_Wait: where two threads of a process wait inside Open MPI 4.1, the one that ends the other's
/// request wakes it, and is then waited for by spinning; on one core that costs the other's time slice, 3 ms,
/// in each exchange (`ompi_sync_wait_mt`, `WAIT_SYNC_RELEASE`). The watchdog knows by the function's name
/// (`waiting_function`) that a thread is in MPI. Throws Error.
[[gnu::noinline]] void wait_all(std::span<MPI_Request> requests);
void wait_for(MPI_Request& request);

}  // namespace coeus
