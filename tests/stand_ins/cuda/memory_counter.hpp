// SPDX-License-Identifier: Apache-2.0
// Counts what kernels do to memory on the emulated GPU, as a GPU would: global memory in sectors of 32 bytes
// for each request of a warp, shared memory in passes through its 32 banks of 4 bytes. Kernels are counted if
// they are compiled with -fsanitize=thread, which calls a function for each access; memory_counter.cpp
// defines these functions instead of the sanitizer's library.
// - A warp's request consists of the accesses that its lanes make at one place of the code, each lane for the
//   n-th time since the last barrier. So lanes that take different paths are counted as one request if they
//   meet there equally often.
// - A copy by TMA is a request for each row of its box. What wgmma reads of shared memory is not counted.
// - Parameters, local variables and pinned memory of the host are not counted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace coeus::emulation {

/// What one grid did to memory.
struct MemoryCounts {
    int64_t read_sectors = 0, written_sectors = 0;  ///< of global memory, 32 bytes each
    int64_t requests = 0;                           ///< of warps to global memory
    /// Accesses of warps to shared memory. Lanes that move 8 or 16 bytes access it in groups of 16 or 8.
    int64_t shared_accesses = 0;
    int64_t shared_passes = 0;  ///< one for each access, and one for each further row of a bank
    int64_t worst_passes = 0;   ///< of an access
};
constexpr int64_t sector_bytes = 32;

/// Counts while it lives. There can be only one.
class MemoryCounter {
public:
    MemoryCounter();
    ~MemoryCounter();
    MemoryCounter(const MemoryCounter&) = delete;
    MemoryCounter& operator=(const MemoryCounter&) = delete;
    /// The counts of the grids that have run since the last call, in order.
    std::vector<MemoryCounts> take();

private:
    class Counting;
    std::unique_ptr<Counting> counting_;
};

}  // namespace coeus::emulation
