// SPDX-License-Identifier: Apache-2.0
// AsyncCheckpoint: saves a checkpoint while training continues.
//
//   main thread    lays out the file | forward, backward of the next step | update, ... | publishes
//   other thread                     | copies weights and moments         | writes them | removes old files
//
// The copies are made during the forward and the backward, which do not change weights and moments. The other
// thread calls neither MPI nor HDF5.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/io/checkpoint.hpp"

#include <atomic>
#include <exception>
#include <memory>
#include <optional>

namespace coeus {

class CheckpointFile;

/// Bytes of the buffer for the copies of this rank's shares of the tensors.
int64_t copied_bytes(const std::vector<CheckpointTensor>& tensors);

/// The result of a save.
struct SavedCheckpoint {
    int64_t step = 0;
    CheckpointStore::Saved saved;
    double seconds = 0;         ///< until the checkpoint was complete
    double seconds_waited = 0;  ///< the part of `seconds` for which training waited
};

class AsyncCheckpoint {
public:
    /// `tensors`: the contents of every checkpoint; `computation` changes them, and their memory stays the
    /// same during the run. Allocates the memory of the copies, which is pinned host memory for a GPU, so
    /// that copies run at the same time as its other work. All arguments outlive it.
    AsyncCheckpoint(const CheckpointStore& store, const Communicator& ranks,
                    std::vector<CheckpointTensor> tensors, const Exec& computation);
    /// The same for tensors on the host.
    AsyncCheckpoint(const CheckpointStore& store, const Communicator& ranks,
                    std::vector<CheckpointTensor> tensors)
        : AsyncCheckpoint(store, ranks, std::move(tensors), Exec()) {}
    /// Waits for the thread. A checkpoint that was not published stays as an unfinished file.
    ~AsyncCheckpoint();

    /// Lays out the file and begins to fill it. No other save may be under way. Its errors are those of
    /// CheckpointStore::save. Collective.
    void begin(const TrainRecord& train);
    /// Returns when the tensors are copied. Call it before they change.
    void wait_for_copies();
    /// Call it between two steps: publishes the checkpoint if every rank has written its part. If a rank
    /// could not write, this is logged, and everything is written once more to a new file; CollectiveError if
    /// that fails too. Collective.
    std::optional<SavedCheckpoint> poll();
    /// True from begin() until the checkpoint is published; the same on all ranks.
    bool is_under_way() const { return state_ != State::idle; }
    /// Waits until no save is under way. Collective.
    std::optional<SavedCheckpoint> finish();

private:
    enum class State : int64_t { idle, running, written, failed };
    void lay_out();
    void write_beside();
    void wait_for_removal();
    std::optional<SavedCheckpoint> conclude();

    const CheckpointStore& store_;
    const Communicator& ranks_;
    std::vector<CheckpointTensor> tensors_, copies_;
    Buffer memory_;
    std::unique_ptr<CheckpointFile> file_;
    TrainRecord train_;  // of the save that is under way
    int attempts_ = 0;
    Timer since_begin_;
    double waited_ = 0;
    std::atomic<State> state_ = State::idle;
    std::exception_ptr failure_;  // of the last attempt, on this rank
    std::string not_removed_;
    Stream stream_;  // destroyed before the members to which its work refers
    Pending copied_, written_, removed_;
};

}  // namespace coeus
