// SPDX-License-Identifier: Apache-2.0
#include "wait.hpp"

#include "check_mpi.hpp"

#include <chrono>
#include <thread>

namespace coeus {

namespace {

// About a millisecond where nobody else wants the core; MPI yields it in each test where it is told to.
constexpr int tests_awake = 10'000;
constexpr std::chrono::microseconds nap(20);

}  // namespace

void wait_all(std::span<MPI_Request> requests) {
    int done = 0;
    for (int tests = 1;; ++tests) {
        COEUS_CHECK_MPI(MPI_Testall(int(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
        if (done) return;
        if (tests > tests_awake) std::this_thread::sleep_for(nap);
    }
}

void wait_for(MPI_Request& request) {
    wait_all({&request, 1});
}

}  // namespace coeus
