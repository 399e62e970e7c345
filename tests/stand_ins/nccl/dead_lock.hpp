// SPDX-License-Identifier: Apache-2.0
// DeadLock: finds, without a clock, that all ranks of a host wait and none of them will ever go on.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace coeus::test {

class DeadLock {
public:
    /// Collective. The memory that the ranks share lives until MPI ends.
    explicit DeadLock(MPI_Comm world);
    /// A rank that waits calls this again and again, one that goes on once with false. `for_others`: it waits
    /// for what other ranks do. True, on each rank that does, when all ranks wait, have looked often since
    /// they were first seen to, and none has gone on.
    bool look(bool again, bool for_others);

private:
    struct Board;
    struct Seen {
        int64_t moves, looks;
    };
    bool all_still_wait();

    Board* board_ = nullptr;
    int rank_ = 0, size_ = 0;
    int64_t handled_ = 0;     // dead-locks
    std::vector<Seen> seen_;  // when all were first seen to wait
};

}  // namespace coeus::test
