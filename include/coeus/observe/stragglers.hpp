// SPDX-License-Identifier: Apache-2.0
// Stragglers: finds the rank for which all others wait, in which phase of a step, and how much time that
// costs.
//
// In synchronous training every rank's step takes as long as that of the slowest rank, so step times do not
// show which rank is slow. The slow rank is the one whose own work takes longest: it waits least in
// collectives, and all others wait for it. So the times for data, computation and saving of each rank are
// compared with those of the ranks that do the same work. An exchange ends when its last rank has arrived and
// the network has finished. The shortest wait in a group of ranks is therefore the network's share, and a
// group is slow if its shortest wait is longer than in other groups of the axis.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/comm/rank_numbers.hpp"
#include "coeus/device/gpu_monitor.hpp"
#include "coeus/observe/step_phases.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// Means of one rank over the steps of a window.
struct RankTimes {
    PhaseTimes phases;     ///< seconds per step; NaN: not observed
    double step = 0;       ///< seconds per step
    double clock_mhz = 0;  ///< of the rank's GPU at the end of the window; 0: no GPU, or not known
    double throttle = 0;   ///< why the GPU throttles: bits of NVML
};

/// A rank, or a group of ranks that exchange data, that is slower than the others of its kind.
struct Straggler {
    int64_t step = 0;  ///< last step of the window
    StepPhase phase = StepPhase::compute;
    int rank = 0;
    std::vector<int> group;  ///< for an exchange: all its ranks, `rank` first
    std::string host;
    double seconds = 0;  ///< seconds per step more than the median; NaN: only the GPU's clock is known
    double step_seconds = 0;
    /// The same of this rank and phase in the window before; none if the rank was not slow there.
    std::optional<double> seconds_before;
    double clock_mhz = 0, median_clock_mhz = 0;  ///< of the GPUs; 0: no GPU
    std::string throttle;

    double percent() const { return step_seconds > 0 ? 100 * seconds / step_seconds : 0; }
};

/// The slowest rank or group of each phase, if it costs at least `percent` of a step; the most costly last.
/// `ranks`: all ranks of the world, in order. Ranks are compared with those of the same pipeline rank. A
/// phase that was not observed, or that has nothing to compare with, is left out.
std::vector<Straggler> find_stragglers(const MeshShape& mesh, const std::vector<RankTimes>& ranks,
                                       double percent);

/// "Slow rank 3 (host n2): its computation takes 12.3 ms per step longer than others, 8 % of 152.0 ms; 2.1 ms
/// more than before"
std::string console_line(const Straggler& s);
/// One line of metrics.jsonl.
std::string json_line(const Straggler& s);

/// Observes the steps of a run. Every member but observe() is collective.
class Stragglers {
public:
    struct Options {
        int64_t every = 100;  ///< steps per window; the first step after a start belongs to no window
        double percent = 5;   ///< a straggler costs at least this percentage of a step
    };
    /// `graphs`: steps are CUDA graphs, whose phases cannot be observed. `gpu` may be null. All are borrowed.
    Stragglers(const Options& options, const Mesh& mesh, const std::vector<std::string>& hosts,
               Exec& computation, bool graphs, const GpuMonitor* gpu);

    /// Observes the computation of a step (counted from 1) during the lifetime of the result. On a GPU only
    /// the last step of each window is observed, on the host every step.
    Observation observe(int64_t step);
    /// Counts a step. At the end of a window it begins to send the ranks' times to rank 0. Returns on rank 0
    /// the stragglers of the window that ended one step ago, and with the `last` step of a run those of its
    /// own window.
    std::vector<Straggler> end_step(int64_t step, bool last, double seconds, double data_seconds);
    /// Adds this rank's own part of a save for which training waited.
    void add_saving(double seconds) { phases_.add_saving(seconds); }

private:
    void send(int64_t step);
    std::vector<Straggler> evaluate();

    Options options_;
    MeshShape mesh_;
    const GpuMonitor* gpu_;
    Exec& computation_;
    bool graphs_;
    StepPhases phases_;
    RankNumbers numbers_;
    const std::vector<std::string>& hosts_;
    bool begun_ = false;
    int64_t window_end_ = 0;
    std::map<std::pair<StepPhase, int>, double> before_;
};

}  // namespace coeus
