// SPDX-License-Identifier: Apache-2.0
// Watchdog: a thread of each rank that detects operations that do not end, crashes and dead neighbours. It
// reports the current operation of every rank and which rank waits for which, even if the other threads wait
// forever.
//
//   within a host   through shared memory: ranks read each other's flight recorders, also those of dead and
//                   stopped ranks
//   between hosts   through files in the run's folder (src/watchdog/meeting_place.hpp)
//
// One rank collects the states of all ranks and prints the report. Then all ranks end with exit code 3; if a
// user asked for the report by SIGQUIT, they continue.
#pragma once

#include "coeus/comm/mpi.hpp"
#include "coeus/comm/queue_watch.hpp"
#include "coeus/config/config.hpp"

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

namespace coeus {

class Watchdog {
public:
    /// Starts the thread, with comm.init_timeout_seconds as time-out. Collective.
    Watchdog(const Config::Comm& options, const MpiRuntime& mpi);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Name of each rank's host.
    const std::vector<std::string>& hosts() const;

    /// Calls `work`. An error that only this rank has is reported with the states of all ranks, and ends the
    /// process. Errors that all ranks have in common, and those that a user can correct, are thrown on.
    void guard(const std::function<void()>& work);

    /// From now on the hosts exchange files in the folder `run` (the run's id) below comm.save_traces_folder
    /// in `folder`. Collective.
    void meet_in(const std::filesystem::path& folder, const std::string& run);
    /// Sets the name of this rank's GPU in reports.
    void set_gpu(const std::string& bus_id);
    /// The watch of NCCL's communicators. They are destroyed before the watchdog.
    QueueWatch& nccl();

    /// Call these around each step. After the first step the time-out is comm.train_timeout_seconds.
    void begin_step(int64_t step);
    void end_step(double seconds);
    /// Seconds of the slowest of the last 100 steps. Steps in which the job was suspended (for longer than
    /// half of the time-out) do not count.
    double slowest_step() const;

    /// The work of a step that a GPU gets as CUDA graphs, until the host has waited for it. It is watched as
    /// one operation, which may take the time-out plus twice the time of the slowest step.
    class Graphs {
    public:
        /// Without `by_graphs` it does nothing.
        Graphs(Watchdog& watchdog, bool by_graphs);
        ~Graphs();
        Graphs(const Graphs&) = delete;
        Graphs& operator=(const Graphs&) = delete;

    private:
        QueueWatch::Line* line_ = nullptr;
    };

private:
    struct Thread;
    Config::Comm options_;
    std::unique_ptr<Thread> thread_;
    std::optional<QueueWatch> nccl_;
    std::optional<QueueWatch::Line> graphs_;
    bool first_step_done_ = false;
    double step_began_ = 0;
    std::array<double, 100> last_steps_ = {};  // seconds
    size_t steps_ended_ = 0;
};

}  // namespace coeus
