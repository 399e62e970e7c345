// SPDX-License-Identifier: Apache-2.0
#include "errands.hpp"

#include "coeus/base/log.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace coeus {

struct Errands::State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> work;  // none: the previous work has ended
    bool ending = false, is_late = false;

    void loop() {
        std::unique_lock lock(mutex);
        while (true) {
            changed.wait(lock, [this] { return ending || work; });
            if (ending) return;
            lock.unlock();
            try {
                work();
            } catch (const std::exception& error) {
                log::warn("The watchdog's records are incomplete: {}", error.what());
            }
            lock.lock();
            work = nullptr;
            changed.notify_all();
        }
    }
};

Errands::Errands() : state_(std::make_shared<State>()) {
    std::thread([state = state_] { state->loop(); }).detach();
}

Errands::~Errands() {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
}

bool Errands::run(double seconds, std::function<void()> work) {
    std::unique_lock lock(state_->mutex);
    const auto ends_within = [&](double allowed) {
        state_->is_late = !state_->changed.wait_for(lock, std::chrono::duration<double>(allowed),
                                                    [this] { return !state_->work; });
        return !state_->is_late;
    };
    // work that was late at the last call gets little more time
    if (!ends_within(state_->is_late ? std::min(seconds, 0.2) : seconds)) return false;
    state_->work = std::move(work);
    state_->changed.notify_all();
    return ends_within(seconds);
}

}  // namespace coeus
