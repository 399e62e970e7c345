// SPDX-License-Identifier: Apache-2.0
#include "../../../src/watchdog/signals.hpp"

#include "coeus/base/clock.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <thread>
#include <utility>

using namespace coeus;
using namespace coeus::test;

namespace {

// A thread that does not hear a question until the test lets it.
class DeafThread {
public:
    // `waits`: called while the thread does not hear.
    explicit DeafThread(std::function<void()> waits)
        : thread_([this, waits = std::move(waits)] {
              sigset_t question;
              sigemptyset(&question);
              sigaddset(&question, SIGURG);
              pthread_sigmask(SIG_BLOCK, &question, nullptr);
              number_.set_value(gettid());
              waits();
              pthread_sigmask(SIG_UNBLOCK, &question, nullptr);
              end_.get_future().wait();
          }),
          number(number_.get_future().get()) {}
    ~DeafThread() {
        end_.set_value();
        thread_.join();
    }
    DeafThread(const DeafThread&) = delete;
    DeafThread& operator=(const DeafThread&) = delete;

private:
    std::promise<int64_t> number_;
    std::promise<void> end_;
    std::thread thread_;

public:
    const int64_t number;
};

constexpr double short_time = 0.02;

// Never sleeps; ends `seconds` after a question was asked.
void compute_after_question(double seconds) {
    sigset_t pending;
    do sigpending(&pending);
    while (sigismember(&pending, SIGURG) == 0);
    for (const Timer asked; asked.seconds() < seconds;) continue;
}

}  // namespace

TEST_CASE("signals: a thread that could run but gets no core is waited for") {
    Signals signals(1);
    const DeafThread computes([] { compute_after_question(4 * short_time); });
    CHECK(signals.stack_of(computes.number, short_time, patience(60)));
}

TEST_CASE("signals: a thread that does not answer does not block the others") {
    Signals signals(1);
    SECTION("asleep") {
        std::promise<void> asked;
        const DeafThread sleeps([&] { asked.get_future().wait(); });
        CHECK_FALSE(signals.stack_of(sleeps.number, short_time, 1e9));
        asked.set_value();
    }
    SECTION("ready to run all the time") {
        std::atomic<bool> asked = false;
        const DeafThread computes([&] {
            while (!asked) continue;
        });
        CHECK_FALSE(signals.stack_of(computes.number, short_time, 2 * short_time));
        asked = true;
    }
}
