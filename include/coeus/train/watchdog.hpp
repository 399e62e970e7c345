// SPDX-License-Identifier: Apache-2.0
// Watchdog: a thread of each rank that sees what does not end, crashes and dead neighbours, and reports for
// all ranks who is at what and waits for whom, while the other threads may be waiting for good.
//
//   within a host     ranks read each other's flight recorders in memory, also of those that are stopped or
//   dead between hosts     by files in the run's folder (src/train/watchdog/meeting_place.hpp)
//
// One rank collects what all are at and prints the report; then all end with exit code 3, or, where a user
// asked by SIGQUIT, go on.
#pragma once

#include "coeus/comm/mpi.hpp"
#include "coeus/comm/watch.hpp"
#include "coeus/train/config.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

namespace coeus {

class Watchdog {
public:
    /// Begins at once, with comm.init_timeout_seconds. Collective.
    Watchdog(const Config::Comm& options, const MpiRuntime& mpi);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// The name of each rank's host.
    const std::vector<std::string>& hosts() const;

    /// Does the work. An error that ends this rank alone is reported with what the others are at, and ends
    /// the process; errors that all ranks have in common, and those that a user can mend, are passed on.
    void guard(const std::function<void()>& work);

    /// From now on the ranks of all hosts meet in comm.save_traces_folder of this folder. Collective.
    void meet_in(const std::filesystem::path& folder);
    /// What reports call this rank's GPU.
    void set_gpu(const std::string& bus_id);
    /// Of NCCL's communicators, which end before it does.
    Watch& nccl();

    /// Around each step. By graphs a GPU's step is one operation, which may take twice as long as the slowest
    /// before, and the time-out. After the first step comm.train_timeout_seconds counts.
    void begin_step(int64_t step, bool by_graph);
    void end_step(double seconds);
    /// Seconds, of those that have ended.
    double slowest_step() const { return slowest_step_; }

private:
    struct Thread;
    Config::Comm options_;
    std::unique_ptr<Thread> thread_;
    std::optional<Watch> nccl_;
    std::optional<Watch::Line> steps_by_graph_;
    bool in_step_by_graph_ = false, first_step_done_ = false;
    double slowest_step_ = 0;
};

}  // namespace coeus
