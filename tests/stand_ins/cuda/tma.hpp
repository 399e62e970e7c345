// SPDX-License-Identifier: Apache-2.0
// The PTX instructions that src/kernels/cuda/ptx/tma.hpp uses, for the CPU: barriers in shared memory
// (mbarrier) and copies of boxes, which arrive at a random time: some early and out of order, the others when
// no thread can continue without. Their target is NaN until then. These are errors:
// - a barrier that is outside of the block's memory, not at a multiple of 8 bytes, used before it has begun,
//   begun twice, or without arrivals; a copy with one that was not shown (fence.mbarrier_init)
// - more arrivals in a phase than its number, and a parity other than 0 and 1
// - a copy of bytes that its barrier does not expect, of something else than a map, or to a place that is not
//   a multiple of 1024 bytes, and a block that ends while one is under way
// - a copy over a barrier, and those that SharedPieces finds (wgmma.hpp)
// A phase for which threads wait in vain is reported with what it lacks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

struct CUtensorMap;

namespace coeus::emulation {

/// mbarrier.init, and the fences that show it.
void begin_barrier(const void* barrier, unsigned arrivals);
void show_barriers();
/// mbarrier.arrive, with .expect_tx if `bytes` is not 0.
void arrive(const void* barrier, unsigned bytes);
/// Repeats mbarrier.try_wait.parity until it is true: the phase with this parity has ended, and is not the
/// one under way.
void wait_for_phase(const void* barrier, unsigned parity);
/// cp.async.bulk.tensor.3d into shared memory. `first`: column, row, matrix.
void copy_box(void* to, const CUtensorMap& map, const void* barrier, std::array<int64_t, 3> first);

/// The barriers and copies of boxes of a block.
class Barriers {
public:
    void begin(size_t offset, unsigned arrivals);
    void show();
    void arrive(size_t offset, unsigned bytes);
    bool has_ended(size_t offset, unsigned parity) const;
    /// What the phase under way lacks.
    std::string lacks(size_t offset) const;
    /// Fails if one is in these bytes.
    void refuse_within(size_t offset, size_t bytes) const;

    /// Starts a copy of so many bytes; `bring` brings them.
    void start_copy(size_t offset, unsigned bytes, std::function<void()> bring);
    size_t copies() const { return copies_.size(); }
    /// Lets a copy arrive.
    void finish_copy(size_t number);

private:
    struct Barrier {
        unsigned arrivals = 0, missing = 0;  ///< of each phase, and of the one under way
        int64_t bytes = 0;                   ///< that are expected and have not arrived
        int64_t unclaimed = 0;               ///< of these, without a copy
        unsigned phase = 0;
        bool is_shown = false;
    };
    struct Copy {
        size_t barrier;
        unsigned bytes;
        std::function<void()> bring;
    };
    const Barrier& at(size_t offset) const;
    Barrier& at(size_t offset);
    static void end_phase(Barrier& barrier);

    std::map<size_t, Barrier> barriers_;  ///< by their offset
    std::vector<Copy> copies_;
};

/// Those of the running block.
Barriers& barriers();
/// Waits until the phase has ended.
void wait_at(size_t barrier, unsigned parity);

}  // namespace coeus::emulation
