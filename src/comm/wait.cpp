// SPDX-License-Identifier: Apache-2.0
#include "wait.hpp"

#include "check_mpi.hpp"
#include "coeus/comm/mpi.hpp"

#include <chrono>
#include <string_view>
#include <thread>

namespace coeus {

namespace {

// About a millisecond if nothing else wants the core. MPI yields the core in each test if it is told to.
constexpr int tests_awake = 10'000;
constexpr std::chrono::microseconds nap(20);

template <auto function>
constexpr std::string_view description() {
    return __PRETTY_FUNCTION__;
}
static_assert(description<wait_all>().find(waiting_function) != std::string_view::npos,
              "waiting_function is not the name of wait_all");

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
