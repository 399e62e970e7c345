// SPDX-License-Identifier: Apache-2.0
// CUDA's model of execution on one CPU thread, for tests of the kernels: blocks run one after the other, the
// threads of a block as fibers that change places at barriers alone, in an order drawn from a seed. What must
// not depend on the order of threads between two barriers is run in several, warps far ahead of others; what
// the threads of a block share is new, of just the size asked for and full of NaN in every block, so that the
// address sanitizer and the results show what is read or written wrongly. A barrier that not all threads
// reach is an error. Asynchronous copies arrive when they are waited for, and their place is NaN until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace coeus::emulation {

struct Index {
    unsigned x = 0, y = 0, z = 0;
};

/// Where the running thread is.
struct Thread {
    Index thread, block, block_size, grid;
    std::byte* shared = nullptr;  ///< of its block
    int lane() const { return int(thread.x % 32); }
};
const Thread& thread();

/// The order of threads from now on.
void set_seed(uint64_t seed);
/// From it, for other orders.
uint64_t random_number();

/// Runs `body` as every thread of the grid. Throws std::runtime_error where threads wait for each other in
/// vain, naming one of them and what it waits for.
void run_grid(Index grid, Index block_size, size_t shared_bytes, const std::function<void()>& body);

/// All threads of the block must come here.
void block_barrier();
/// The lanes of the mask must come here, with the same mask, for the same purpose.
void warp_barrier(unsigned mask, const char* what);

/// What the 32 lanes of a warp do together: called once when all have come, with what each has given.
using Collective = void (*)(void* const* lanes);
void warp_collective(Collective run, void* operands, const char* what);

constexpr size_t slot_bytes = 64;
/// A place for each lane of the running warp.
std::byte* slot(int lane);
/// Throws, with the place of the running thread.
[[noreturn]] void fail(const char* what);

/// What `source` has as its value.
template <class T>
T exchange(unsigned mask, const T& value, int source, const char* what) {
    static_assert(sizeof(T) <= slot_bytes);
    std::memcpy(slot(thread().lane()), &value, sizeof(T));
    warp_barrier(mask, what);
    if ((mask >> source & 1u) == 0) fail("a shuffle reads from a lane that takes no part");
    T other;
    std::memcpy(&other, slot(source), sizeof(T));
    warp_barrier(mask, what);
    return other;
}

}  // namespace coeus::emulation
