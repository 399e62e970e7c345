// SPDX-License-Identifier: Apache-2.0
#include "signals.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "neighbours.hpp"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <poll.h>

namespace coeus {

namespace {

// Global, since signal handlers get no argument. What they write is read only after the flag that they set
// last.
struct Heard {
    int wake = -1;  // eventfd
    double patience = 0;
    std::atomic<bool> by_hand = false;
    std::atomic<int64_t> watchdog = 0;

    std::atomic<int64_t> asked = 0;  // thread
    std::atomic<bool> answered = false;
    CallStack stack;

    std::atomic<bool> crashing = false, crashed = false, reported = false;
    int signal = 0;
    int64_t thread = 0;
    void* address = nullptr;
    CallStack crash_stack;
};
Heard heard;

void wake_watchdog() {
    const uint64_t one = 1;
    if (write(heard.wake, &one, sizeof one) < 0) return;  // full: the watchdog is awake already
}

void hear_by_hand(int) {
    const int kept = errno;
    heard.by_hand = true;
    wake_watchdog();
    errno = kept;
}

void answer(int) {
    const int kept = errno;
    int64_t self = gettid();
    if (heard.asked.compare_exchange_strong(self, 0)) {
        heard.stack.capture();
        heard.answered = true;
    }
    wake_watchdog();
    errno = kept;
}

void say(const char* text, size_t length) {
    if (write(STDERR_FILENO, text, length) < 0) return;
}

// Ends the process, after the report or if nobody can report. Leaves a core file if `ulimit -c` allows one.
[[noreturn]] void end(int signal) {
    rlimit core{};
    if (getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_cur > 0) {
        std::signal(signal, SIG_DFL);
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, signal);
        pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
        std::raise(signal);
    }
    std::_Exit(int(ExitCode::system));
}

void hear_crash(int signal, siginfo_t* info, void*) {
    if (gettid() == heard.watchdog) {
        constexpr char text[] = "coeus: the watchdog itself crashed\n";
        say(text, sizeof text - 1);
        end(signal);
    }
    if (!heard.crashing.exchange(true)) {
        heard.signal = signal;
        heard.thread = gettid();
        heard.address = info->si_addr;
        heard.crash_stack.capture();
        heard.crashed = true;
        wake_watchdog();
    }
    const timespec pause = {0, 100'000'000};
    for (double waited = 0; waited < heard.patience && !heard.reported; waited += 0.1)
        nanosleep(&pause, nullptr);
    constexpr char text[] = "coeus: crashed, and the watchdog has not reported it\n";
    if (!heard.reported) say(text, sizeof text - 1);
    end(signal);
}

const char* describe_crash(int signal) {
    switch (signal) {
        case SIGSEGV: return "segmentation fault";
        case SIGBUS: return "bus error (a mapped file was truncated, or /dev/shm is full)";
        case SIGFPE: return "arithmetic error";
        case SIGILL: return "illegal instruction (was the program built for another processor?)";
        default: return "aborted (its last lines of output say why)";
    }
}

}  // namespace

Signals::Signals(double patience) : alternate_stack_(64 << 10) {
    CallStack::load();
    heard.patience = patience;
    heard.by_hand = heard.answered = heard.crashing = heard.crashed = heard.reported = false;
    heard.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (heard.wake < 0) throw SystemError("eventfd: " + errno_text(errno));
    // after a stack overflow the thread's own stack has no room for a handler
    const stack_t stack = {
        .ss_sp = alternate_stack_.data(), .ss_flags = 0, .ss_size = alternate_stack_.size()};
    sigaltstack(&stack, nullptr);
    const auto handle = [&](int signal, struct sigaction action) {
        sigemptyset(&action.sa_mask);
        struct sigaction before {};
        sigaction(signal, &action, &before);
        before_.emplace_back(signal, before);
    };
    struct sigaction action {};
    action.sa_flags = SA_RESTART;
    action.sa_handler = hear_by_hand;
    handle(SIGQUIT, action);
    action.sa_handler = answer;
    handle(SIGURG, action);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = hear_crash;
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) handle(signal, action);
}

Signals::~Signals() {
    for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
    const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
    heard.watchdog = 0;
    close(std::exchange(heard.wake, -1));
}

void Signals::this_is_the_watchdog() {
    heard.watchdog = gettid();
}

void Signals::wait(double seconds, int descriptor) {
    pollfd looked_at[2] = {{heard.wake, POLLIN, 0}, {descriptor, POLLIN, 0}};
    if (poll(looked_at, descriptor < 0 ? 1 : 2, std::max(1, int(seconds * 1000))) <= 0) return;
    uint64_t count = 0;
    if (read(heard.wake, &count, sizeof count) < 0) return;  // only the other descriptor is ready
}

void Signals::wake() {
    wake_watchdog();
}

bool Signals::asked_by_hand() {
    return heard.by_hand.exchange(false);
}

std::optional<Signals::Crash> Signals::crash() const {
    if (!heard.crashed) return std::nullopt;
    return Crash{heard.thread,
                 fmt::format("{} (signal {}{})", describe_crash(heard.signal), heard.signal,
                             heard.signal == SIGABRT ? "" : fmt::format(", at {}", heard.address)),
                 heard.crash_stack};
}

void Signals::end_crashed() const {
    heard.reported = true;
}

std::optional<CallStack> Signals::stack_of(int64_t thread, double seconds, double while_ready) {
    if (heard.crashed && heard.thread == thread) return heard.crash_stack;
    heard.answered = false;
    heard.asked = thread;
    if (syscall(SYS_tgkill, getpid(), pid_t(thread), SIGURG) != 0) return std::nullopt;
    const Timer timer;
    const timespec pause = {0, 1'000'000};
    const auto may_answer = [&] {
        const double waited = timer.seconds();
        return waited < seconds || (waited < while_ready && process_state(getpid(), thread) == 'R');
    };
    while (!heard.answered && may_answer()) nanosleep(&pause, nullptr);
    int64_t still = thread;
    if (!heard.answered && heard.asked.compare_exchange_strong(still, 0)) return std::nullopt;
    // it has begun to answer; if that needs a lock that the thread holds, it never ends
    const double most = timer.seconds() + seconds;
    while (!heard.answered && timer.seconds() < most) nanosleep(&pause, nullptr);
    if (!heard.answered) return std::nullopt;
    return heard.stack;
}

void Signals::wake_process(int64_t pid) {
    kill(pid_t(pid), SIGURG);
}

}  // namespace coeus
