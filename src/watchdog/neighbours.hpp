// SPDX-License-Identifier: Apache-2.0
// Neighbours: the ranks of this host, whose flight recorders this process can read, and what the system says
// of their processes. One of them, the next, is watched: so that of any that die one is seen at once.
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
        std::unique_ptr<FlightRecorder> recorder;  ///< null where it cannot be read
    };
    /// This rank too.
    const std::vector<Neighbour>& all() const { return all_; }
    /// The next one, where it has died without having ended its work in order.
    const Neighbour* dead_neighbour() const;
    /// Becomes readable when the next one dies; -1: there is no such thing.
    int descriptor() const;

    /// What is known of a rank of this host without its help; silent where its recorder cannot be read.
    RankState state_of(const Neighbour& neighbour) const;
    /// The states of those of this host that died or are stopped.
    std::vector<RankState> that_cannot_answer() const;
    /// False where another rank of this host has already claimed this event, or a later one.
    bool claim(int64_t event) const;
    /// Tells all of this host of it, and wakes them.
    void tell(int64_t event) const;
    /// The last one that any of them claimed or told.
    int64_t told() const;

private:
    FlightRecorder::Notes* notes_of_host() const;
    int rank_ = 0;
    std::vector<std::string> hosts_;
    std::vector<Neighbour> all_;
    const Neighbour* next_ = nullptr;
    int descriptor_ = -1;
};

/// Letter of a process's, or of a thread's, state (/proc/PID/stat): R runs, S sleeps, D waits for a disk, T
/// and t are stopped, Z and 0 are gone.
char process_state(int64_t pid, int64_t thread = 0);

}  // namespace coeus
