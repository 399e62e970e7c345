// SPDX-License-Identifier: Apache-2.0
// Stragglers: which rank all others wait for, in which phase of a step, and what that costs.
//
// In synchronous training all steps take as long as those of the slowest rank, so that step times tell
// nothing. The slow rank is the one whose own work takes longest; it waits least in collectives, and all
// others wait for it. So its data, computation and saving are compared with those of the ranks that do the
// same work. An exchange ends when its last rank has come and the network is done: the least wait of a group
// of ranks is the network's share, and a group is slow where that is more than in other groups of the axis.
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
    PhaseTimes phases;     ///< seconds a step; not a number: not seen
    double step = 0;       ///< seconds
    double clock_mhz = 0;  ///< of its GPU, at the window's end; 0: none, or not known
    double throttle = 0;   ///< its reasons, bits of NVML
};

/// A rank, or a group of ranks that exchange something, that is slower than the others of its kind.
struct Straggler {
    int64_t step = 0;  ///< the last of the window
    StepPhase phase = StepPhase::compute;
    int rank = 0;
    std::vector<int> group;  ///< of an exchange: all ranks of it, of which `rank` is the first
    std::string host;
    double seconds = 0;  ///< of each step, more than the median
    double step_seconds = 0;
    /// Of the same rank and phase in the window before, where it was slow there.
    std::optional<double> seconds_before;
    double clock_mhz = 0, median_clock_mhz = 0;  ///< of GPUs; 0: none
    std::string throttle;

    double percent() const { return step_seconds > 0 ? 100 * seconds / step_seconds : 0; }
};

/// Of each phase the slowest, where it costs at least `percent` of a step; the costliest last. `ranks`: of
/// the world, in order. Ranks are compared with those of the same pipeline rank; where there is no other, or
/// a phase was not seen, nothing is said.
std::vector<Straggler> find_stragglers(const MeshShape& mesh, const std::vector<RankTimes>& ranks,
                                       double percent);

/// "Slow rank 3 (host n2): its computation takes 12.3 ms a step more than that of others, 8 % of 152.0 ms;
/// 2.1 ms more than before"
std::string console_line(const Straggler& s);
/// One line of metrics.jsonl.
std::string json_line(const Straggler& s);

/// Watches the steps of a run. Every member is collective, but observe().
class Stragglers {
public:
    struct Options {
        int64_t every = 100;  ///< steps of a window; the first step of a start is in none
        double percent = 5;
    };
    /// `graphs`: what a GPU does within a step is not seen. `gpu` may be null; all are borrowed.
    Stragglers(const Options& options, const Mesh& mesh, const std::vector<std::string>& hosts,
               Exec& computation, bool graphs, const GpuMonitor* gpu);

    /// Observes the computation of a step, counted from 1, for as long as what is returned lives. On a GPU
    /// the last step of a window is observed, on the host each.
    Observation observe(int64_t step);
    /// Counts the step; at the end of a window the ranks' times go on their way to rank 0. With rank 0:
    /// who was slow in the window that ended a step ago, or with this `last` one.
    std::vector<Straggler> end_step(int64_t step, bool last, double seconds, double data_seconds);
    /// This rank's own part of a save that training waited for.
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
