// SPDX-License-Identifier: Apache-2.0
// AsyncCheckpoint: saving while training goes on.
//
//   main thread     lays the file out | next step's forward and backward | its update | ...   | publishes
//   beside it                           copies what the update will change | writes the copies  | removes old
//   ones
//
// The copies hide behind the forward and the backward, which leave weights and moments alone; the thread
// beside it calls neither MPI nor HDF5.
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

/// Bytes of the copies of this rank's shares of the tensors.
int64_t copied_bytes(const std::vector<CheckpointTensor>& tensors);

/// What came of a save.
struct SavedCheckpoint {
    int64_t step = 0;
    CheckpointStore::Saved saved;
    double seconds = 0;         ///< until it stood under its name
    double seconds_waited = 0;  ///< of these, those that training waited
};

class AsyncCheckpoint {
public:
    /// `tensors`: what every checkpoint will hold; their memory is that of the whole run, which `computation`
    /// changes. Takes the memory of the copies: of a GPU's tensors pinned host memory, so that the copies run
    /// beside its work. All outlive it.
    AsyncCheckpoint(const CheckpointStore& store, const Communicator& ranks,
                    std::vector<CheckpointTensor> tensors, const Exec& computation);
    /// The same of the host's tensors.
    AsyncCheckpoint(const CheckpointStore& store, const Communicator& ranks,
                    std::vector<CheckpointTensor> tensors)
        : AsyncCheckpoint(store, ranks, std::move(tensors), Exec()) {}
    /// Waits for the thread; what it wrote and nobody published is left as an unfinished file.
    ~AsyncCheckpoint();

    /// Collective: lays a file out and begins to fill it. Nothing else may be under way. Errors as those of
    /// CheckpointStore::save.
    void begin(const TrainRecord& train);
    /// The tensors are about to change: returns when they are copied.
    void wait_for_copies();
    /// Between two steps, collective: gives the file its name if every rank has written its part. What could
    /// not be written is said, and written once more into a new file; CollectiveError where that fails too.
    std::optional<SavedCheckpoint> poll();
    /// Something was begun and is not published; the same on all ranks.
    bool is_under_way() const { return state_ != State::idle; }
    /// Collective: waits until nothing is under way.
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
    TrainRecord train_;  // of what is under way
    int attempts_ = 0;
    Timer since_begin_;
    double waited_ = 0;
    std::atomic<State> state_ = State::idle;
    std::exception_ptr failure_;  // of the last attempt, on this rank
    std::string not_removed_;
    Stream stream_;  // ends before what its work refers to
    Pending copied_, written_, removed_;
};

}  // namespace coeus
