// SPDX-License-Identifier: Apache-2.0
// How the threads of OpenMP wait for each other.
#pragma once

namespace coeus {

/// How often a waiting thread looks for work before it sleeps: for half a millisecond, if a pause of the
/// processor takes 45 ns. That is longer than threads wait for each other within a step on a quiet machine,
/// and much shorter than a time slice. libgomp's default of 300,000 looks takes 14 ms. If other processes
/// need the core, these are lost, since the thread that is waited for may be among those that do not run.
inline constexpr int looks_before_sleep = 10000;

/// Executes the program again, with looks_before_sleep in the environment: libgomp reads GOMP_SPINCOUNT when
/// it is loaded, so it is too late in main(). Call it at the beginning of main(), with its argument, before
/// threads are started and MPI is initialized. Returns if the environment has GOMP_SPINCOUNT or
/// OMP_WAIT_POLICY, which were then chosen by the user or by an earlier call, if the dynamic loader was
/// started with the program as its argument, and if the system cannot execute the program.
void let_waiting_threads_sleep(char** arguments);

}  // namespace coeus
