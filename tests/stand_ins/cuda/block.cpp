// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/block.hpp"

#include "stand_ins/cuda/mma.hpp"
#include "stand_ins/cuda/tma.hpp"
#include "stand_ins/cuda/wgmma.hpp"

#include <boost/context/fiber.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace coeus::emulation {

namespace {

using boost::context::fiber;

constexpr size_t stack_bytes = size_t(384) << 10;
// Stacks begin at different places of their pages: otherwise all of them would share a few sets of the
// caches.
size_t stack_offset(size_t thread) {
    return thread % 128 * 17 * 64;
}
constexpr int warp_size = 32;

enum class State { ready, at_block_barrier, at_warp_barrier, at_phase, left };

// An asynchronous copy to shared memory; without a source it writes zeros.
struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    int group;
};

// Work that is interrupted at a barrier: that of a thread, or of the scheduler.
struct Work {
    fiber rest;
    const void* stack = nullptr;
    size_t stack_bytes = 0;
    void* fake_stack = nullptr;  // of the address sanitizer
};

struct ThreadOfBlock {
    Thread at;
    State state = State::ready;
    unsigned mask = 0;         // of the warp barrier where it waits
    const char* what = "";     // what it waits for
    Collective run = nullptr;  // the operation of its warp after the wait
    void* operands = nullptr;  // its operands of that operation
    size_t barrier = 0;        // at whose phase it waits
    unsigned parity = 0;       // of that phase
    std::vector<Copy> copies;  // started, and not waited for
    int groups_of_copies = 0;  // that have ended
    Work work;
};

// The interface that Boost wants of a stack allocator.
struct KeptStack {
    std::byte* memory;
    size_t offset;
    boost::context::stack_context allocate() const {
        boost::context::stack_context stack;
        stack.size = stack_bytes - offset;
        stack.sp = memory + stack.size;
        return stack;
    }
    void deallocate(boost::context::stack_context&) const {}
};

// An order of 32 lanes made from one random number (multiplied by an odd number, shifted, mirrored). Any
// two lanes may come in either order.
class LaneOrder {
public:
    explicit LaneOrder(uint64_t bits) : factor_(bits | 1), first_(bits >> 8), mirror_(bits >> 16) {}
    size_t operator[](size_t i) const {
        return (((i ^ mirror_) * factor_ + first_) ^ (mirror_ >> 8)) % warp_size;
    }

private:
    uint64_t factor_, first_, mirror_;
};

using Lanes = std::span<ThreadOfBlock>;

// The lanes of a warp that can continue, in the order of one round.
class Round {
public:
    Round() = default;
    Round(Lanes warp, uint64_t bits) : warp_(warp), order_(bits) {}
    ThreadOfBlock* next() {
        while (done_ < warp_size) {
            const size_t lane = order_[done_++];
            if (lane < warp_.size() && warp_[lane].state == State::ready) return &warp_[lane];
        }
        return nullptr;
    }

private:
    Lanes warp_;
    LaneOrder order_{0};
    size_t done_ = 0;
};

struct Block {
    explicit Block(size_t shared_bytes) : pieces(shared_bytes) {}
    SharedPieces pieces;
    Barriers barriers;
    std::vector<WarpProducts> products;  // of each warp; none if no warp has used them
    std::span<ThreadOfBlock> threads;
    ThreadOfBlock* running = nullptr;
    Round round;
    Work scheduler;
    Work* left = nullptr;  // what was interrupted last
    const std::function<void()>* body = nullptr;
    std::string failure;
    bool abandoned = false;
};

struct Abandoned {};  // thrown in a waiting thread when its block ends

Block* current = nullptr;
GridObserver* grid_observer = nullptr;
std::mt19937_64 draw(1);

std::string place(const Thread& t) {
    const auto text = [](const Index& i) {
        return "(" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
    };
    return "thread " + text(t.thread) + " of block " + text(t.block);
}

// After a jump: what was left can be continued.
void arrive([[maybe_unused]] const Work& here, fiber&& left) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(here.fake_stack, &current->left->stack, &current->left->stack_bytes);
#endif
    current->left->rest = std::move(left);
}

// Leaves `here`, continues `there`, and returns when something jumps to `here`.
void jump(Work& here, Work& there) {
    current->left = &here;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&here.fake_stack, there.stack, there.stack_bytes);
#endif
    arrive(here, std::move(there.rest).resume());
}

void run(ThreadOfBlock& thread, Work& here) {
    current->running = &thread;
    jump(here, thread.work);
}

// Continues the next lane of the round, or the scheduler if there is none.
void leave(ThreadOfBlock& thread) {
    const bool ends = current->abandoned || !current->failure.empty();
    if (ThreadOfBlock* const next = ends ? nullptr : current->round.next())
        run(*next, thread.work);
    else
        jump(thread.work, current->scheduler);
}

// The work of a thread, and after it that of the same thread of each later block.
fiber run_thread(fiber&& left) {
    ThreadOfBlock& thread = *current->running;
    arrive(thread.work, std::move(left));
    for (;;) {
        try {
            if (!current->abandoned) (*current->body)();
            if (!thread.copies.empty()) fail("a thread leaves while its copies are under way");
            const auto& products = current->products;
            if (const size_t warp = thread.at.thread.x / warp_size;
                warp < products.size() && !products[warp].under_way.empty())
                fail("a thread leaves while a wgmma is under way");
        } catch (const Abandoned&) {
        } catch (const std::exception& error) {
            current->failure = error.what();
        }
        thread.state = State::left;
        leave(thread);
    }
}

// The first threads of every block. They are kept, so that their stacks stay mapped, and never destroyed.
std::span<ThreadOfBlock> threads_of_block(size_t count) {
    static auto& threads = *new std::vector<ThreadOfBlock>(1024);
    if (count > threads.size()) throw std::runtime_error("emulation: a block has at most 1024 threads");
    for (size_t i = 0; i < count; ++i) {
        ThreadOfBlock& thread = threads[i];
        if (thread.work.stack) continue;
        void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("emulation: no memory for a stack");
        thread.work.stack = memory;
        thread.work.stack_bytes = stack_bytes;
        const KeptStack stack = {static_cast<std::byte*>(memory), stack_offset(i)};
        thread.work.rest = fiber(std::allocator_arg, stack, run_thread);
    }
    return std::span(threads).first(count);
}

void wait(ThreadOfBlock& thread, State state, const char* what) {
    thread.state = state;
    thread.what = what;
    leave(thread);
    if (current->abandoned) throw Abandoned();
}

bool are_equal(const char* a, const char* b) {
    return a == b || std::strcmp(a, b) == 0;
}

// Lanes of a mask continue when they all wait for each other. Returns true if any do.
bool release_lanes(Lanes warp) {
    bool any = false;
    for (const ThreadOfBlock& thread : warp) {
        if (thread.state != State::at_warp_barrier) continue;
        const unsigned mask = thread.mask;
        const auto waits_too = [&thread](const ThreadOfBlock& other) {
            return other.state == State::at_warp_barrier && other.mask == thread.mask &&
                   other.run == thread.run && are_equal(other.what, thread.what);
        };
        bool complete = mask >> (warp.size() - 1) <= 1u;
        void* operands[warp_size] = {};
        for (size_t lane = 0; lane < warp.size() && complete; ++lane) {
            if ((mask >> lane & 1u) == 0) continue;
            complete = waits_too(warp[lane]);
            operands[lane] = warp[lane].operands;
        }
        if (!complete) continue;
        if (thread.run) thread.run(operands);
        for (size_t lane = 0; lane < warp.size(); ++lane)
            if ((mask >> lane & 1u) != 0) warp[lane].state = State::ready;
        any = true;
    }
    return any;
}

// Runs a warp until all of its lanes have ended or wait (for the block or in vain), or one has failed. The
// order of lanes is drawn for each round.
void run_warp(Lanes warp) {
    do {
        current->round = Round(warp, draw());
        if (ThreadOfBlock* const first = current->round.next()) run(*first, current->scheduler);
        if (!current->failure.empty()) return;
        if (grid_observer) grid_observer->warp_waits();
    } while (release_lanes(warp));
}

// If all threads wait for the block, they continue.
bool release_block(std::span<ThreadOfBlock> threads) {
    const auto waits = [](const ThreadOfBlock& thread) { return thread.state == State::at_block_barrier; };
    if (!std::all_of(threads.begin(), threads.end(), waits)) return false;
    for (ThreadOfBlock& thread : threads) thread.state = State::ready;
    return true;
}

void finish_a_copy(Block& block) {
    block.barriers.finish_copy(draw() % block.barriers.copies());
}

// Lets a copy of a box arrive now and then, as long as some thread may still wait for it.
void finish_copies_early(Block& block) {
    const auto has_left = [](const ThreadOfBlock& thread) { return thread.state == State::left; };
    if (block.barriers.copies() > 0 && draw() % 4 == 0 && !std::ranges::all_of(block.threads, has_left))
        finish_a_copy(block);
}

// Threads whose phase has ended continue. While there is none, copies arrive.
bool release_phases(Block& block) {
    for (;;) {
        bool any_waits = false, any_continues = false;
        for (ThreadOfBlock& thread : block.threads) {
            if (thread.state != State::at_phase) continue;
            any_waits = true;
            if (!block.barriers.has_ended(thread.barrier, thread.parity)) continue;
            thread.state = State::ready;
            any_continues = true;
        }
        if (any_continues || !any_waits || block.barriers.copies() == 0) return any_continues;
        finish_a_copy(block);
    }
}

// Reports a thread that has not ended although no thread can continue.
void note_what_waits_in_vain(Block& block) {
    for (const ThreadOfBlock& thread : block.threads)
        if (thread.state != State::left && block.failure.empty()) {
            block.failure = "emulation: " + place(thread.at) + " waits in vain for others at " + thread.what;
            if (thread.state == State::at_phase)
                block.failure += ", which " + block.barriers.lacks(thread.barrier);
        }
}

// Ends the remaining threads; each unwinds its stack.
void abandon(Block& block) {
    block.abandoned = true;
    for (ThreadOfBlock& thread : block.threads)
        if (thread.state != State::left) run(thread, current->scheduler);
}

// Between two barriers of the block each warp runs as far as it can, and so gets far ahead of the warps after
// it.
void run_block(Block& block) {
    std::vector<size_t> warps((block.threads.size() + warp_size - 1) / warp_size);
    std::iota(warps.begin(), warps.end(), size_t(0));
    do {
        std::shuffle(warps.begin(), warps.end(), draw);
        for (const size_t warp : warps) {
            const size_t first = warp * warp_size;
            run_warp(block.threads.subspan(first, std::min<size_t>(warp_size, block.threads.size() - first)));
            if (!block.failure.empty()) break;
            finish_copies_early(block);
        }
    } while (block.failure.empty() && (release_block(block.threads) || release_phases(block)));
    if (block.failure.empty()) note_what_waits_in_vain(block);
    if (block.failure.empty() && block.barriers.copies() > 0)
        block.failure = "emulation: a block ends while a copy of a box is under way";
    for (size_t warp = 0; warp < block.products.size() && block.failure.empty(); ++warp)
        if (block.products[warp].count != block.products[warp / 4 * 4].count)
            block.failure = "emulation: the warps of a warpgroup start different numbers of wgmma";
    if (!block.failure.empty()) abandon(block);
}

}  // namespace

const Thread& thread() {
    return current->running->at;
}

void set_seed(uint64_t seed) {
    draw.seed(seed);
}

uint64_t random_number() {
    return draw();
}

void run_grid(Index grid, Index block_size, size_t shared_bytes, const std::function<void()>& body) {
    if (block_size.y != 1 || block_size.z != 1)
        throw std::runtime_error("emulation: blocks are rows of threads");
    if (grid_observer) grid_observer->begin_grid();
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                void* memory = nullptr;
                if (posix_memalign(&memory, 128, std::max<size_t>(shared_bytes, 1)) != 0)
                    throw std::runtime_error("emulation: no memory for a block");
                const std::unique_ptr<std::byte, void (*)(void*)> shared(static_cast<std::byte*>(memory),
                                                                         std::free);
                std::memset(shared.get(), 0xff, shared_bytes);
                Block block(shared_bytes);
                block.body = &body;
                block.threads = threads_of_block(block_size.x);
                for (unsigned i = 0; i < block_size.x; ++i) {
                    ThreadOfBlock& thread = block.threads[i];
                    thread.at = {{i, 0, 0}, {x, y, z}, block_size, grid, shared.get(), shared_bytes};
                    thread.state = State::ready;
                    thread.copies.clear();
                    thread.groups_of_copies = 0;
                }
                current = &block;
                run_block(block);
                current = nullptr;
                if (!block.failure.empty()) throw KernelError(block.failure);
            }
}

void observe_grids(GridObserver* observer) {
    grid_observer = observer;
}

void tell_of_access(const void* place, const void* memory, size_t bytes, bool writes) {
    if (grid_observer && current) grid_observer->access(place, memory, bytes, writes);
}

void block_barrier() {
    wait(*current->running, State::at_block_barrier, "a barrier of the block");
}

void warp_barrier(unsigned mask, const char* what, Collective run, void* operands) {
    ThreadOfBlock& thread = *current->running;
    if ((mask >> thread.at.lane() & 1u) == 0) fail("a lane is not in its own mask");
    thread.mask = mask;
    thread.run = run;
    thread.operands = operands;
    wait(thread, State::at_warp_barrier, what);
}

void warp_collective(Collective run, void* operands, const char* what) {
    if (thread().block_size.x % warp_size != 0) fail("a warp without all of its lanes");
    warp_barrier(0xffffffffu, what, run, operands);
}

unsigned ballot(unsigned mask, int predicate) {
    struct Operands {
        int predicate;
        unsigned votes;
    } operands = {predicate, 0};
    const auto run = [](void* const* lanes) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < warp_size; ++lane)
            if (const auto* const o = static_cast<const Operands*>(lanes[lane]); o && o->predicate != 0)
                votes |= 1u << lane;
        for (unsigned lane = 0; lane < warp_size; ++lane)
            if (auto* const o = static_cast<Operands*>(lanes[lane])) o->votes = votes;
    };
    warp_barrier(mask, "__ballot_sync", run, &operands);
    return operands.votes;
}

namespace {

size_t offset_of(const void* shared) {
    return size_t(static_cast<const std::byte*>(shared) - current->running->at.shared);
}

// Brings what the running thread copies in groups with smaller numbers.
void wait_for_copies_before(int group) {
    std::vector<Copy>& copies = current->running->copies;
    for (const Copy& copy : copies) {
        if (copy.group >= group) continue;
        if (copy.from)
            std::memcpy(copy.to, copy.from, copy.bytes);
        else
            std::memset(copy.to, 0, copy.bytes);
        current->pieces.copy_arrives(offset_of(copy.to), copy.bytes);
    }
    std::erase_if(copies, [group](const Copy& copy) { return copy.group < group; });
}

}  // namespace

void copy_async(void* to, const void* from, size_t bytes) {
    const auto is_aligned = [bytes](const void* p) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; };
    if (!is_aligned(to) || !is_aligned(from)) fail("a copy is not at a multiple of its size");
    if (from) tell_of_access(__builtin_return_address(0), from, bytes, false);
    tell_of_access(__builtin_return_address(0), to, bytes, true);
    ThreadOfBlock& thread = *current->running;
    if (const char* const failure = current->pieces.copy_starts(offset_of(to), bytes, thread.at.thread.x))
        fail(failure);
    current->barriers.refuse_within(offset_of(to), bytes);
    std::memset(to, 0xff, bytes);
    thread.copies.push_back({to, from, bytes, thread.groups_of_copies});
}

void wait_for_copies() {
    wait_for_copies_before(current->running->groups_of_copies + 1);
}

void end_copies() {
    ++current->running->groups_of_copies;
}

void wait_for_copies(int groups) {
    wait_for_copies_before(current->running->groups_of_copies - groups);
}

void show_to_products() {
    current->pieces.show(current->running->at.thread.x);
}

Barriers& barriers() {
    return current->barriers;
}

void wait_at(size_t barrier, unsigned parity) {
    ThreadOfBlock& thread = *current->running;
    if (current->barriers.has_ended(barrier, parity)) return;
    thread.barrier = barrier;
    thread.parity = parity;
    wait(thread, State::at_phase, "a phase of a barrier");
}

SharedPieces& shared_pieces() {
    return current->pieces;
}

WarpProducts& warp_products(size_t warp) {
    if (current->products.empty()) current->products.resize(current->threads.size() / warp_size);
    return current->products[warp];
}

void fail(const char* what) {
    throw std::runtime_error("emulation: " + std::string(what) + ", " + place(thread()));
}

}  // namespace coeus::emulation
