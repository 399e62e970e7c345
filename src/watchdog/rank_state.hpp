// SPDX-License-Identifier: Apache-2.0
// RankState: what a rank is at, as a watchdog's report has it: from its flight recorder, and from file to
// file between hosts.
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
        silent  ///< of another host, and has not answered
    };
    /// An entry of its recorder.
    struct Entry {
        std::string line;  ///< the communicator; "": none
        uint64_t id = 0;   ///< of the line
        OperationKind kind = OperationKind::collective;
        std::string name, place;  ///< "all_reduce", "train/trainer.cpp:374" or the file
        int64_t sequence = 0, bytes = 0;
        int peer = -1;
        int64_t thread = 0;
        bool under_way = false;
        bool reached = true;  ///< false: it waits in a GPU's queue
        double seconds = 0;   ///< since it began where it is under way, else since it ended

        /// "all_reduce 14 of dp_shard (8 B, train/trainer.cpp:374)"
        std::string text() const;
        bool is_communication() const { return kind < OperationKind::file; }
        bool is_given_to_gpu() const { return kind == OperationKind::queued || kind == OperationKind::graph; }
    };
    struct Stack {
        int64_t thread = 0;
        bool in_mpi = false;   ///< or in NCCL
        bool on_disk = false;  ///< the system says that it waits for a disk
        std::vector<std::string> calls;
    };
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
    std::string error;  ///< that ends it, and it alone
    std::vector<Line> lines;
    std::vector<Entry> entries;  ///< the last of each line, and all that are under way; the oldest first
    std::vector<Stack> stacks;   ///< the main thread's first

    /// "rank 3 (host a, GPU 0000:1b:00.0, process 4711)"
    std::string who() const;
    /// What it is at: of its main thread, else of its GPU, which works off what it was given in order, else
    /// of a thread that communicates, else what its main thread may wait for. Null: nothing.
    const Entry* at() const;
    /// The last that has ended.
    const Entry* last() const;
    const Stack* stack_of(int64_t thread) const;
};

/// Of this process, or of another one's memory.
RankState state_of(const FlightRecorder& recorder, double now);

Json json_of(const RankState& state);
/// ConfigError where it is not one.
RankState rank_state_of(const JsonView& json);

}  // namespace coeus
