// SPDX-License-Identifier: Apache-2.0
// RankState: the state of a rank in a watchdog's report. It is read from the rank's flight recorder; hosts
// exchange it as JSON files.
#pragma once

#include "coeus/base/flight_recorder.hpp"
#include "coeus/file/json.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

struct RankState {
    enum class Condition : uint8_t {
        running,
        stopped,  ///< by a signal or a debugger
        died,
        silent  ///< on another host, and has not answered
    };
    /// An operation in its recorder.
    struct Entry {
        std::string line;  ///< the communicator; "": none
        uint64_t id = 0;   ///< id of the communicator
        OperationKind kind = OperationKind::collective;
        std::string name, place;  ///< "all_reduce", "train/trainer.cpp:374" or the file
        int64_t sequence = 0, bytes = 0;
        int peer = -1;
        int64_t thread = 0;
        bool under_way = false;
        bool reached = true;  ///< false: it waits in a GPU's queue
        double seconds = 0;   ///< since it began if it is under way, else since it ended

        /// "all_reduce 14 of dp_shard (8 B, train/trainer.cpp:374)"
        std::string text() const;
        bool is_communication() const { return kind < OperationKind::file; }
        bool is_given_to_gpu() const { return kind == OperationKind::queued || kind == OperationKind::graph; }
    };
    struct Stack {
        int64_t thread = 0;
        bool in_mpi = false;   ///< the thread is in MPI or NCCL
        bool on_disk = false;  ///< the thread waits for a disk (state D)
        std::vector<std::string> calls;
    };
    /// A communicator of the rank. `collectives`: how many it has entered.
    struct Line {
        std::string name;
        uint64_t id = 0;
        int rank = 0, size = 1;
        int64_t collectives = 0;
    };

    int rank = 0;
    std::string host, gpu;
    int64_t pid = 0, step = 0;
    Condition condition = Condition::running;
    std::string crash;  ///< "segmentation fault ..."
    std::string error;  ///< an error that only this rank has, and that ends it
    std::vector<Line> lines;
    std::vector<Entry> entries;  ///< the last ones of each line, and all that are under way; the oldest first
    std::vector<Stack> stacks;   ///< the main thread's first

    /// "rank 3 (host a, GPU 0000:1b:00.0, process 4711)"
    std::string who() const;
    /// Its current operation: that of its main thread, else of its GPU (which works in order), else of a
    /// thread that communicates, else one for which its main thread may wait. Null: none.
    const Entry* at() const;
    /// The last operation that has ended; null: none.
    const Entry* last() const;
    const Stack* stack_of(int64_t thread) const;
};

/// The state in a recorder, of this process or of another one on this host. `now`: steady_seconds().
RankState state_of(const FlightRecorder& recorder, double now);

Json json_of(const RankState& state);
/// ConfigError if the JSON is not a state.
RankState rank_state_of(const JsonView& json);

}  // namespace coeus
