// SPDX-License-Identifier: Apache-2.0
// The first function runs on the thread's own stack, the second one on a fiber's.
#include "coeus/base/turns.hpp"

#include "coeus/base/error.hpp"

#include <boost/context/fiber.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <exception>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace coeus {

namespace {

using boost::context::fiber;

// as large as the stack of a thread usually is; only pages that are used take memory
constexpr size_t stack_bytes = size_t(8) << 20, guard_bytes = size_t(64) << 10;

// What the sanitizers must be told about a change of stacks. The stack that is left: `fake` belongs to it.
// The other stack: its end and size, and its fiber as the thread sanitizer sees it.
struct Side {
    void* fake = nullptr;
    const void* stack = nullptr;
    size_t bytes = 0;
    void* of_threads = nullptr;
};

void leave([[maybe_unused]] Side& from, [[maybe_unused]] const Side& to, [[maybe_unused]] bool for_ever) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &from.fake, to.stack, to.bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to.of_threads, 0);
#endif
}

void arrive([[maybe_unused]] Side& here, [[maybe_unused]] Side& from) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(here.fake, &from.stack, &from.bytes);
#endif
}

struct GivenUp {};  // thrown in the second function at its next turn if the first one has failed

// The interface that Boost wants of a stack allocator.
struct KeptStack {
    std::byte* memory;
    boost::context::stack_context allocate() const {
        boost::context::stack_context stack;
        stack.size = stack_bytes;
        stack.sp = memory + stack_bytes;
        return stack;
    }
    void deallocate(boost::context::stack_context&) const {}
};

}  // namespace

struct Turns::Fibers {
    std::byte* memory = nullptr;  // a guard that must not be touched, and the second stack
    fiber other;                  // the one that does not have its turn; empty if it has ended
    bool second_runs = false, given_up = false, first_has_ended = false;
    std::exception_ptr failure;  // of the second function
    Side first, second;

    Fibers() {
        void* const all = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) throw SystemError("there is no memory for a second stack");
        memory = static_cast<std::byte*>(all);
        mprotect(memory, guard_bytes, PROT_NONE);
        second.stack = memory + guard_bytes;
        second.bytes = stack_bytes;
    }
    ~Fibers() { munmap(memory, guard_bytes + stack_bytes); }
    Fibers(const Fibers&) = delete;
    Fibers& operator=(const Fibers&) = delete;

    void start(FunctionRef<void()> function) {
        second.fake = nullptr;
        other = fiber(std::allocator_arg, KeptStack{memory + guard_bytes}, [this, function](fiber&& caller) {
            arrive(second, first);
            other = std::move(caller);
            second_runs = true;
            try {
                if (!given_up) function();
            } catch (const GivenUp&) {  // the first function's exception is on its way
            } catch (...) {
                failure = std::current_exception();
            }
            second_runs = false;
            leave(second, first, true);
            return std::exchange(other, {});
        });
    }

    // The other one continues; returns at this one's next turn.
    void change() {
        Side &here = second_runs ? second : first, &there = second_runs ? first : second;
        const bool second_was_running = second_runs;
        second_runs = !second_runs;
        leave(here, there, false);
        // what comes back is the other one as it is now, or empty if it has ended
        fiber now = std::exchange(other, {}).resume();
        arrive(here, there);
        other = std::move(now);
        second_runs = second_was_running;
        if (second_runs && given_up) throw GivenUp();
        if (!second_runs && failure) std::rethrow_exception(std::exchange(failure, nullptr));
    }
};

Turns::Turns() : fibers_(std::make_unique<Fibers>()) {}
Turns::~Turns() = default;

bool Turns::are_taken() const {
    return fibers_->other && !fibers_->first_has_ended;
}

void Turns::change() {
    if (are_taken()) fibers_->change();
}

void Turns::run(FunctionRef<void()> first, FunctionRef<void()> second) {
    Fibers& fibers = *fibers_;
    fibers.given_up = fibers.first_has_ended = false;
    fibers.failure = nullptr;
#ifdef __SANITIZE_THREAD__
    fibers.first.of_threads = __tsan_get_current_fiber();
    fibers.second.of_threads = __tsan_create_fiber(0);
#endif
    fibers.start(second);
    std::exception_ptr failure;
    try {
        first();
    } catch (...) {
        failure = std::current_exception();
    }
    fibers.given_up = bool(failure);
    fibers.first_has_ended = true;
    try {
        while (fibers.other) fibers.change();
    } catch (...) {
        if (!failure) failure = std::current_exception();
    }
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(fibers.second.of_threads);
#endif
    if (failure) std::rethrow_exception(failure);
}

}  // namespace coeus
