// SPDX-License-Identifier: Apache-2.0
// Neighbours: the ranks of this host, whose flight recorders this process can read, and the states of their
// processes. Each rank watches the next one, so that a death is noticed at once.
#pragma once

#include "coeus/base/flight_recorder.hpp"
#include "coeus/comm/mpi.hpp"
#include "rank_state.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

class Neighbours {
public:
    /// Collective over the world.
    explicit Neighbours(const MpiRuntime& mpi);
    ~Neighbours();
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;

    int rank() const { return rank_; }
    int world_size() const { return int(hosts_.size()); }
    const std::vector<std::string>& hosts() const { return hosts_; }
    const std::string& host_of(int rank) const { return hosts_[size_t(rank)]; }

    struct Neighbour {
        int rank;
        int64_t pid;
        std::unique_ptr<FlightRecorder> recorder;  ///< null if it cannot be read
    };
    /// All ranks of this host, including this one.
    const std::vector<Neighbour>& all() const { return all_; }
    /// The next rank, if its process died before its work was complete; else null.
    const Neighbour* dead_neighbour() const;
    /// A file descriptor that becomes readable when the next rank dies; -1: not available.
    int descriptor() const;

    /// The state of a rank of this host, found without its help; silent if its recorder cannot be read.
    RankState state_of(const Neighbour& neighbour) const;
    /// The states of the ranks of this host that died or are stopped.
    std::vector<RankState> that_cannot_answer() const;
    /// False if another rank of this host has already claimed this event or a later one.
    bool claim(int64_t event) const;
    /// Tells all ranks of this host of an event, and wakes them.
    void tell(int64_t event) const;
    /// The last event that a rank of this host claimed or told.
    int64_t told() const;

private:
    FlightRecorder::Notes* notes_of_host() const;
    int rank_ = 0;
    std::vector<std::string> hosts_;
    std::vector<Neighbour> all_;
    const Neighbour* next_ = nullptr;
    int descriptor_ = -1;
};

/// The state of a process or a thread as a letter (/proc/PID/stat): R runs, S sleeps, D waits for a disk, T
/// and t are stopped, Z and 0 have ended. `thread`: 0 for the main thread.
char process_state(int64_t pid, int64_t thread = 0);

}  // namespace coeus
