// SPDX-License-Identifier: Apache-2.0
#include "support/patience.hpp"

#include "coeus/base/clock.hpp"
#include "support/catch.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

namespace coeus::test {

namespace {

constexpr double most = 30;
constexpr double idle_seconds = 0.01;  // for the work below, on an idle machine

double processor_seconds() {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// How many times longer a piece of work takes than on an idle machine, in processor time and in elapsed time.
struct Slowness {
    double processor, clock;
};
Slowness measure_slowness() {
    const double before = processor_seconds();
    const Timer timer;
    uint64_t number = 1;
    for (int i = 0; i < 4'000'000; ++i) {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
    }
    [[maybe_unused]] const volatile uint64_t kept = number;
    return {(processor_seconds() - before) / idle_seconds, timer.seconds() / idle_seconds};
}

// The number of processes that want to run per core: the mean of the last minute or the current one,
// whichever is larger.
double load_of_a_core() {
    double load = 0, unused = 0, running = 0;
    std::ifstream in("/proc/loadavg");
    in >> load >> unused >> unused >> running;
    cpu_set_t cores;
    const int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return std::max(load, running - 1) / std::max(count, 1);
}

double slowness_now() {
    const Slowness slowness = measure_slowness();
    return std::clamp(std::max(slowness.clock, slowness.processor * std::max(1.0, load_of_a_core())), 1.0,
                      most);
}

// The largest slowness so far, measured again at each use, but not more than once a second. It never becomes
// smaller: times that a test compares, such as a delay and a longer time-out, keep their order.
double factor() {
    static const char* const given = std::getenv("COEUS_TEST_PATIENCE");
    if (given && std::atof(given) > 0) return std::atof(given);
    static std::mutex mutex;
    static std::optional<Timer> measured;
    static double largest = 1;
    const std::lock_guard lock(mutex);
    if (!measured || measured->seconds() > 1) {
        largest = std::max(largest, slowness_now());
        measured.emplace();
    }
    return largest;
}

}  // namespace

double patience(double seconds) {
    return seconds * factor();
}

int64_t whole_patience(double seconds) {
    return std::max<int64_t>(1, std::llround(patience(seconds)));
}

void wait_until(const std::string& what, const std::function<bool()>& is_so) {
    const Timer timer;
    while (!is_so()) {
        if (timer.seconds() > patience(120)) FAIL("waited in vain: " << what);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

}  // namespace coeus::test
