// SPDX-License-Identifier: Apache-2.0
// Watchdog: a thread of each rank that sees what does not end, crashes and dead neighbours, and reports for
// all ranks who is at what and waits for whom, while the other threads may be waiting for good.
//
//   within a host   by memory: ranks read each other's flight recorders, of dead and stopped ones too
//   between hosts   by files in the run's folder (src/watchdog/meeting_place.hpp)
//
// One rank collects what all are at and prints the report; then all end with exit code 3, or, where a user
// asked by SIGQUIT, go on.
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

    /// From now on the ranks of all hosts meet in comm.save_traces_folder of this folder, in a folder of
    /// their own that has the run's id as its name. Collective.
    void meet_in(const std::filesystem::path& folder, const std::string& run);
    /// What reports call this rank's GPU.
    void set_gpu(const std::string& bus_id);
    /// Of NCCL's communicators, which end before it does.
    QueueWatch& nccl();

    /// Around each step. After the first one comm.train_timeout_seconds counts.
    void begin_step(int64_t step);
    void end_step(double seconds);
    /// Seconds, of the last 100 that have ended; steps in which the job was suspended, for longer than half
    /// of what an operation may take, do not count.
    double slowest_step() const;

    /// What a step gives to a GPU as graphs, until the host has waited for it: one operation, which may take
    /// twice as long as the slowest step, and the time-out.
    class Graphs {
    public:
        /// Not `by_graphs`: nothing.
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
