// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/nccl/dead_lock.hpp"

#include <array>
#include <atomic>
#include <new>

namespace coeus::test {

// What the ranks know of each other's waiting, in shared memory.
struct DeadLock::Board {
    struct Seat {
        std::atomic<int64_t> moves, looks;  // how often the rank continued, and how often it looked
        std::atomic<bool> waiting;
    };
    std::atomic<int64_t> dead_locks;  // number found until now
    std::array<Seat, 64> seats;
};

DeadLock::DeadLock(MPI_Comm world) {
    MPI_Comm_rank(world, &rank_);
    MPI_Comm_size(world, &size_);
    MPI_Win window = MPI_WIN_NULL;
    MPI_Win_allocate_shared(rank_ == 0 ? sizeof(Board) : 0, 1, MPI_INFO_NULL, world, &board_, &window);
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window, 0, &bytes, &unit, &board_);
    if (rank_ == 0) new (board_) Board();
    MPI_Barrier(world);
}

bool DeadLock::look(bool again, bool for_others) {
    Board::Seat& own = board_->seats[size_t(rank_)];
    if (!again) {
        if (own.waiting.exchange(false)) ++own.moves;
        return false;
    }
    own.waiting = true;
    if (++own.looks % 64 != 0 || !for_others) return false;
    if (board_->dead_locks == handled_ && all_still_wait()) {
        int64_t before = handled_;  // several ranks find the same dead-lock
        board_->dead_locks.compare_exchange_strong(before, handled_ + 1);
    }
    if (board_->dead_locks == handled_) return false;
    ++handled_;
    own.waiting = false;
    ++own.moves;
    return true;
}

bool DeadLock::all_still_wait() {
    constexpr int64_t often = 2000;
    std::vector<Seen> now;
    for (int rank = 0; rank < size_; ++rank) {
        const Board::Seat& seat = board_->seats[size_t(rank)];
        if (!seat.waiting) {
            seen_.clear();
            return false;
        }
        now.push_back({seat.moves, seat.looks});
    }
    bool same = seen_.size() == now.size(), looked = true;
    for (size_t rank = 0; same && rank < now.size(); ++rank) {
        same = now[rank].moves == seen_[rank].moves;
        looked = looked && now[rank].looks > seen_[rank].looks + often;
    }
    if (!same) seen_ = now;
    return same && looked;
}

}  // namespace coeus::test
