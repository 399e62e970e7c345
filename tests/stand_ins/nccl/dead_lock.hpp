// SPDX-License-Identifier: Apache-2.0
// DeadLock detects, without a clock, that all ranks of a host wait and none of them can ever continue.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace coeus::test {

class DeadLock {
public:
    /// Collective. The shared memory lives until MPI ends.
    explicit DeadLock(MPI_Comm world);
    /// A rank calls this again and again while it waits, and once with `again` = false when it continues.
    /// `for_others`: it waits for other ranks. Returns true, on each rank that waits for others, if all ranks
    /// wait, all have looked often since they were first seen waiting, and none has continued.
    bool look(bool again, bool for_others);

private:
    struct Board;
    struct Seen {
        int64_t moves, looks;
    };
    bool all_still_wait();

    Board* board_ = nullptr;
    int rank_ = 0, size_ = 0;
    int64_t handled_ = 0;     // number of dead-locks
    std::vector<Seen> seen_;  // counts when all ranks were first seen waiting
};

}  // namespace coeus::test
