// SPDX-License-Identifier: Apache-2.0
// A library to preload into a run on several ranks. A rank that waits inside Open MPI yields its core between
// its tests for messages, again and again: it counts as a process that wants to run, and takes time from the
// ranks that compute. Here it sleeps after a while.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int calls_awake = 1000;          // a millisecond, if nothing else wants the core
constexpr microseconds longest_test(100);  // a longer time between two calls: the thread has computed
constexpr microseconds nap(500);

}  // namespace

extern "C" int sched_yield() noexcept {
    thread_local Clock::time_point last;
    thread_local int calls = 0;
    if (Clock::now() - last > longest_test) calls = 0;
    if (++calls <= calls_awake)
        syscall(SYS_sched_yield);
    else
        std::this_thread::sleep_for(nap);
    last = Clock::now();
    return 0;
}
