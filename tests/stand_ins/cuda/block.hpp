// SPDX-License-Identifier: Apache-2.0
// CUDA's model of execution on one CPU thread, for tests of the kernels.
// - Blocks run one after the other. The threads of a block are fibers that switch only at barriers, in an
//   order drawn from a seed. Results must not depend on the order of threads between two barriers: tests use
//   several orders, in which warps get far ahead of others.
// - The shared memory of each block is newly allocated, has exactly the requested size and is full of NaN, so
//   that the address sanitizer and the results reveal wrong reads and writes.
// - A barrier that some threads do not reach is an error.
// - An asynchronous copy arrives when it is waited for; its destination is NaN until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>

namespace coeus::emulation {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

/// The position of the running thread.
struct Thread {
    Index thread, block, block_size, grid;
    std::byte* shared = nullptr;  ///< of its block
    size_t shared_bytes = 0;
    int lane() const { return int(thread.x % 32); }
};
const Thread& thread();

/// Sets the order of threads from now on.
void set_seed(uint64_t seed);
/// The next number of the same generator, for other random orders.
uint64_t random_number();

/// A kernel has broken a rule, or its threads wait for each other in vain: the message names one of them and
/// what it waits for.
class KernelError : public std::runtime_error {
public:
    using runtime_error::runtime_error;
};

/// Runs `body` as every thread of the grid. Throws KernelError.
void run_grid(Index grid, Index block_size, size_t shared_bytes, const std::function<void()>& body);

/// Is told what a grid does (memory_counter.hpp).
class GridObserver {
public:
    virtual ~GridObserver() = default;
    virtual void begin_grid() = 0;
    /// The running thread accesses memory; `place` is where the kernel does so.
    virtual void access(const void* place, const void* memory, size_t bytes, bool writes) = 0;
    /// The warp that has run until now waits, or has ended.
    virtual void warp_waits() = 0;
};
/// From now on the observer, which is borrowed, is told; with null, none.
void observe_grids(GridObserver* observer);
/// Tells the observer, if there is one and a kernel runs.
void tell_of_access(const void* place, const void* memory, size_t bytes, bool writes);

/// All threads of the block must call this.
void block_barrier();
/// An operation of some lanes of a warp: called once when all of them have arrived, with the operands of
/// each, and null for each lane that takes no part.
using Collective = void (*)(void* const* lanes);
/// All lanes of the mask must call this, with the same mask, the same `what` and the same operation, if any.
void warp_barrier(unsigned mask, const char* what, Collective run = nullptr, void* operands = nullptr);
/// An operation of all 32 lanes of a warp.
void warp_collective(Collective run, void* operands, const char* what);
/// The lanes of the mask for which `predicate` is not 0, a bit for each.
unsigned ballot(unsigned mask, int predicate);

/// Throws; the message names the running thread.
[[noreturn]] void fail(const char* what);

/// The `value` of the lane `source`.
template <class T>
T exchange(unsigned mask, const T& value, int source, const char* what) {
    if ((mask >> source & 1u) == 0) fail("a shuffle reads from a lane that takes no part");
    struct Operands {
        T given;
        int source;
        T taken;
    } operands = {value, source, value};
    const auto run = [](void* const* lanes) {
        for (int lane = 0; lane < 32; ++lane)
            if (auto* const o = static_cast<Operands*>(lanes[lane]))
                o->taken = static_cast<const Operands*>(lanes[o->source])->given;
    };
    warp_barrier(mask, what, run, &operands);
    return operands.taken;
}

}  // namespace coeus::emulation
