// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/block.hpp"

#include "stand_ins/cuda/mma.hpp"
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

constexpr size_t stack_bytes = size_t(256) << 10;
constexpr int warp_size = 32;

enum class State { ready, at_block_barrier, at_warp_barrier, left };

// An asynchronous copy to shared memory; without a source it writes zeros.
struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    int group;
};

struct ThreadOfBlock {
    Thread at;
    State state = State::ready;
    unsigned mask = 0;           // of the warp barrier where it waits
    const char* what = "";       // what it waits for
    Collective run = nullptr;    // the operation of its warp after the wait
    void* operands = nullptr;    // its operands of that operation
    std::vector<Copy> copies;    // started, and not waited for
    int groups_of_copies = 0;    // that have ended
    fiber rest;                  // the rest of its work, after the wait
    void* fake_stack = nullptr;  // of the address sanitizer
};

// Stacks are reused by later blocks, so that their pages stay mapped.
class Stacks {
public:
    std::byte* operator[](size_t i) {
        while (stacks_.size() <= i) {
            void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory == MAP_FAILED) throw std::runtime_error("emulation: no memory for a stack");
            stacks_.push_back(static_cast<std::byte*>(memory));
        }
        return stacks_[i];
    }
    ~Stacks() {
        for (std::byte* stack : stacks_) munmap(stack, stack_bytes);
    }

private:
    std::vector<std::byte*> stacks_;
};

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

struct Block {
    explicit Block(size_t shared_bytes) : pieces(shared_bytes) {}
    std::vector<std::byte> slots;
    SharedPieces pieces;
    std::vector<WarpProducts> products;  // of each warp; none if no warp has used them
    std::vector<ThreadOfBlock> threads;
    ThreadOfBlock* running = nullptr;
    fiber scheduler;  // its work after a thread has begun to wait
    void* scheduler_fake_stack = nullptr;
    const void* scheduler_stack = nullptr;
    size_t scheduler_stack_bytes = 0;
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

void run_until_it_waits(ThreadOfBlock& thread, [[maybe_unused]] std::byte* stack) {
    current->running = &thread;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&current->scheduler_fake_stack, stack, stack_bytes);
#endif
    thread.rest = std::move(thread.rest).resume();
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(current->scheduler_fake_stack, nullptr, nullptr);
#endif
}

void announce_return([[maybe_unused]] ThreadOfBlock& thread) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(thread.state == State::left ? nullptr : &thread.fake_stack,
                                   current->scheduler_stack, current->scheduler_stack_bytes);
#endif
}

fiber run_thread(fiber&& scheduler) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &current->scheduler_stack, &current->scheduler_stack_bytes);
#endif
    current->scheduler = std::move(scheduler);
    ThreadOfBlock& thread = *current->running;
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
    announce_return(thread);
    return std::move(current->scheduler);
}

void wait(State state, unsigned mask, const char* what) {
    ThreadOfBlock& thread = *current->running;
    thread.state = state;
    thread.mask = mask;
    thread.what = what;
    announce_return(thread);
    current->scheduler = std::move(current->scheduler).resume();
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(thread.fake_stack, nullptr, nullptr);
#endif
    if (current->abandoned) throw Abandoned();
}

using Lanes = std::span<ThreadOfBlock>;

void run_together(Lanes warp, Collective run) {
    void* operands[warp_size];
    for (size_t lane = 0; lane < warp_size; ++lane) operands[lane] = warp[lane].operands;
    run(operands);
}

// Lanes of a mask continue when they all wait for each other. Returns true if any do.
bool release_lanes(Lanes warp) {
    bool any = false;
    for (const ThreadOfBlock& thread : warp) {
        if (thread.state != State::at_warp_barrier) continue;
        const unsigned mask = thread.mask;
        const auto takes_part = [mask](size_t lane) { return (mask >> lane & 1u) != 0; };
        bool complete = mask >> (warp.size() - 1) <= 1u;
        for (size_t lane = 0; lane < warp.size() && complete; ++lane)
            complete =
                !takes_part(lane) || (warp[lane].state == State::at_warp_barrier && warp[lane].mask == mask &&
                                      std::strcmp(warp[lane].what, thread.what) == 0);
        if (!complete) continue;
        if (thread.run) run_together(warp, thread.run);
        for (size_t lane = 0; lane < warp.size(); ++lane)
            if (takes_part(lane)) warp[lane].state = State::ready;
        any = true;
    }
    return any;
}

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

// Runs a warp until all of its lanes have ended or wait (for the block or in vain), or one has failed. The
// order of lanes is drawn for each round.
void run_warp(Lanes warp, size_t first, Stacks& stacks) {
    do {
        const LaneOrder order(draw());
        for (size_t i = 0; i < warp_size; ++i) {
            const size_t lane = order[i];
            if (lane >= warp.size() || warp[lane].state != State::ready) continue;
            run_until_it_waits(warp[lane], stacks[first + lane]);
            if (!current->failure.empty()) return;
        }
        if (grid_observer) grid_observer->warp_waits();
    } while (release_lanes(warp));
}

// If all threads wait for the block, they continue.
bool release_block(std::vector<ThreadOfBlock>& threads) {
    const auto waits = [](const ThreadOfBlock& thread) { return thread.state == State::at_block_barrier; };
    if (!std::all_of(threads.begin(), threads.end(), waits)) return false;
    for (ThreadOfBlock& thread : threads) thread.state = State::ready;
    return true;
}

// Reports a thread that has not ended although no thread can continue.
void note_what_waits_in_vain(Block& block) {
    for (const ThreadOfBlock& thread : block.threads)
        if (thread.state != State::left && block.failure.empty())
            block.failure = "emulation: " + place(thread.at) + " waits in vain for others at " + thread.what;
}

// Ends the remaining threads; each unwinds its stack.
void abandon(Block& block, Stacks& stacks) {
    block.abandoned = true;
    for (size_t i = 0; i < block.threads.size(); ++i)
        if (block.threads[i].state != State::left) run_until_it_waits(block.threads[i], stacks[i]);
}

// Between two barriers of the block each warp runs as far as it can, and so gets far ahead of the warps after
// it.
void run_block(Block& block, Stacks& stacks) {
    std::vector<size_t> warps((block.threads.size() + warp_size - 1) / warp_size);
    std::iota(warps.begin(), warps.end(), size_t(0));
    for (size_t i = 0; i < block.threads.size(); ++i)
        block.threads[i].rest = fiber(std::allocator_arg, KeptStack{stacks[i]}, run_thread);
    do {
        std::shuffle(warps.begin(), warps.end(), draw);
        for (const size_t warp : warps) {
            const size_t first = warp * warp_size;
            run_warp(Lanes(block.threads)
                         .subspan(first, std::min<size_t>(warp_size, block.threads.size() - first)),
                     first, stacks);
            if (!block.failure.empty()) break;
        }
    } while (block.failure.empty() && release_block(block.threads));
    if (block.failure.empty()) note_what_waits_in_vain(block);
    for (size_t warp = 0; warp < block.products.size() && block.failure.empty(); ++warp)
        if (block.products[warp].count != block.products[warp / 4 * 4].count)
            block.failure = "emulation: the warps of a warpgroup start different numbers of wgmma";
    if (!block.failure.empty()) abandon(block, stacks);
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
    static Stacks stacks;
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
                block.threads.resize(block_size.x);
                block.slots.resize((block_size.x + warp_size - 1) / warp_size * warp_size * slot_bytes);
                for (unsigned i = 0; i < block_size.x; ++i)
                    block.threads[i].at = {{i, 0, 0}, {x, y, z},    block_size,
                                           grid,      shared.get(), shared_bytes};
                current = &block;
                run_block(block, stacks);
                current = nullptr;
                if (!block.failure.empty()) throw std::runtime_error(block.failure);
            }
}

void observe_grids(GridObserver* observer) {
    grid_observer = observer;
}

void tell_of_access(const void* place, const void* memory, size_t bytes, bool writes) {
    if (grid_observer && current) grid_observer->access(place, memory, bytes, writes);
}

void block_barrier() {
    wait(State::at_block_barrier, 0, "a barrier of the block");
}

void warp_barrier(unsigned mask, const char* what) {
    if ((mask >> thread().lane() & 1u) == 0) fail("a lane is not in its own mask");
    wait(State::at_warp_barrier, mask, what);
}

void warp_collective(Collective run, void* operands, const char* what) {
    ThreadOfBlock& thread = *current->running;
    if (thread.at.block_size.x % warp_size != 0) fail("a warp without all of its lanes");
    thread.run = run;
    thread.operands = operands;
    warp_barrier(0xffffffffu, what);
    thread.run = nullptr;
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

SharedPieces& shared_pieces() {
    return current->pieces;
}

WarpProducts& warp_products(size_t warp) {
    if (current->products.empty()) current->products.resize(current->threads.size() / warp_size);
    return current->products[warp];
}

std::byte* slot(int lane) {
    const size_t warp = thread().thread.x / warp_size;
    return current->slots.data() + (warp * warp_size + size_t(lane)) * slot_bytes;
}

void fail(const char* what) {
    throw std::runtime_error("emulation: " + std::string(what) + ", " + place(thread()));
}

}  // namespace coeus::emulation
