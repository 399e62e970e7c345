// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/copy_rate.hpp"

#include "coeus/base/clock.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace coeus {

namespace {

constexpr int calls = 5;
constexpr int64_t host_bytes = int64_t(64) << 20;
constexpr int64_t first_bytes = int64_t(4) << 20, least_bytes = int64_t(1) << 20;  // on a GPU
constexpr double long_enough = 0.4e-3;                                             // seconds of a copy
constexpr double too_long = 0.1;  // seconds of the host for all of a size

// Two blocks of a device's memory.
struct Blocks {
    Blocks(const Device& device, int64_t bytes)
        : from(Dtype::f32, {bytes / 4}, "memory probe", device.memory()),
          to(Dtype::f32, {bytes / 4}, "memory probe", device.memory()) {}
    OwnedTensor from, to;
};

CopyRate rate_of_host(Exec& exec, const Kernels& kernels) {
    const Blocks blocks(*exec.device, host_bytes);
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < calls; ++i) {
        const Timer one;
        kernels.cast(exec, blocks.to, blocks.from);
        exec.queue->finish();
        least = std::min(least, one.seconds());
    }
    return {2 * double(host_bytes) / least, host_bytes};
}

// Seconds of a copy. The first call is not part of the interval: it warms up, and while it runs the host
// submits the others.
template <class Copy>
double seconds_of(const Exec& exec, const Copy& copy) {
    const auto begin = exec.device->make_timed_event(), end = exec.device->make_timed_event();
    copy();
    begin->record(*exec.queue);
    for (int i = 0; i < calls; ++i) copy();
    end->record(*exec.queue);
    return end->seconds_since(*begin) / calls;
}

// The rate with blocks of this size, and whether larger ones would tell more.
std::pair<CopyRate, bool> rate_of_gpu(Exec& exec, const Kernels& kernels, int64_t bytes) {
    const Blocks blocks(*exec.device, bytes);
    const auto by_kernel = [&] { kernels.cast(exec, blocks.to, blocks.from); };
    const auto by_driver = [&] {
        exec.queue->copy(blocks.to.view.data, blocks.from.view.data, blocks.to.view.bytes());
    };
    by_kernel();  // the first call may load the kernel
    exec.queue->finish();
    const Timer timer;
    const double of_kernel = seconds_of(exec, by_kernel), of_driver = seconds_of(exec, by_driver);
    const double least = std::min(of_kernel, of_driver);
    return {{2 * double(bytes) / least, bytes, of_kernel <= of_driver},
            least < long_enough && timer.seconds() < too_long};
}

}  // namespace

CopyRate copy_rate(Exec& exec, const Kernels& kernels) {
    if (exec.is_synchronous()) return rate_of_host(exec, kernels);
    const int64_t free = exec.device->memory_bytes() - exec.device->taken_bytes();
    const int64_t most = std::clamp(free / 16, least_bytes, most_copied_bytes) / least_bytes * least_bytes;
    for (int64_t bytes = std::min(first_bytes, most);; bytes = std::min(2 * bytes, most)) {
        const auto [rate, grows] = rate_of_gpu(exec, kernels, bytes);
        if (bytes == most || !grows) return rate;
    }
}

}  // namespace coeus
