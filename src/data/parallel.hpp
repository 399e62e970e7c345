// SPDX-License-Identifier: Apache-2.0
// Processes numbered items with several threads; the caller's thread takes the results in order. At most four
// items per thread are in progress or waiting to be taken, so that memory is bounded.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace coeus {

/// Default number of threads: those of the hardware.
inline int hardware_threads() {
    return int(std::max(1u, std::thread::hardware_concurrency()));
}

/// For i in [0, count): calls result = work(state, i) on some thread, with one State per thread made by
/// make_state(), then take(i, result) on this thread, in the order of i. The first exception of either stops
/// everything and is rethrown here.
template <class MakeState, class Work, class Take>
void in_order(int64_t count, int threads, MakeState make_state, Work work, Take take) {
    using State = decltype(make_state());
    using Result = decltype(work(std::declval<State&>(), int64_t(0)));
    const int64_t ahead = 4 * int64_t(threads);
    std::vector<std::optional<Result>> ring(
        static_cast<size_t>(std::min(ahead, std::max<int64_t>(count, 1))));
    std::mutex mutex;
    std::condition_variable changed;
    std::exception_ptr error;
    int64_t next = 0, taken = 0;

    const auto worker = [&] {
        try {
            State state = make_state();
            while (true) {
                std::unique_lock lock(mutex);
                changed.wait(lock,
                             [&] { return error || next >= count || next < taken + int64_t(ring.size()); });
                if (error || next >= count) return;
                const int64_t mine = next++;
                lock.unlock();
                Result result = work(state, mine);
                lock.lock();
                ring[size_t(mine) % ring.size()] = std::move(result);
                changed.notify_all();
            }
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!error) error = std::current_exception();
            changed.notify_all();
        }
    };
    {
        std::vector<std::jthread> team;
        for (int64_t t = 0; t < std::min<int64_t>(threads, count); ++t) team.emplace_back(worker);
        try {
            for (int64_t i = 0; i < count; ++i) {
                std::unique_lock lock(mutex);
                auto& slot = ring[size_t(i) % ring.size()];
                changed.wait(lock, [&] { return error || slot; });
                if (!slot) break;
                Result result = std::move(*slot);
                slot.reset();
                taken = i + 1;
                changed.notify_all();
                lock.unlock();
                take(i, std::move(result));
            }
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!error) error = std::current_exception();
            changed.notify_all();
        }
    }
    if (error) std::rethrow_exception(error);
}

}  // namespace coeus
