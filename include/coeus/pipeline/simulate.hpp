// SPDX-License-Identifier: Apache-2.0
// Proves that a timetable of computations can run, and computes how long it takes and how much it keeps
// alive. Each rank executes its row in order. F of a stage needs F of the stage before; B and I need F of
// their own stage and B or I of the next; W needs I. Messages take no time.
#pragma once

#include "coeus/pipeline/schedule.hpp"

#include <cstdint>
#include <vector>

namespace coeus {

/// ConfigError for the first wrong action, with rank, cell (both counted from 0) and reason: a stage on the
/// wrong rank, an action that is duplicated or missing, an action before one that it needs, or a deadlock. An
/// overlapped pair starts only when both of its actions can.
void check(const Timetable& table);

/// Duration of each computation, in any unit. The defaults are those of the literature.
struct CostModel {
    int64_t forward = 1, backward = 2, backward_input = 1, backward_weight = 1;
    int64_t of(ActionKind kind) const;
};

struct TimedAction {
    Action action;
    int cell = 0;  ///< index in the row
    bool second_of_pair = false;
    int64_t start = 0, end = 0;
};

struct Simulation {
    std::vector<std::vector<TimedAction>> rows;
    int64_t makespan = 0;
    double bubble_fraction = 0;  ///< 1 - busy time / (ranks * makespan)
    std::vector<int64_t> busy;   ///< by rank
    /// By rank: the most (stage, micro-batch) frames alive at a time, from the start of F to the end of B or
    /// W.
    std::vector<int> peak_frames;
    /// The same by stage.
    std::vector<int> peak_frames_of_stage;
    /// By rank: the most weight halves postponed at a time, between I and W.
    std::vector<int> peak_owed_weights;
};

/// Throws like check(). The actions of a pair run one after the other, each as soon as it can.
Simulation simulate(const Timetable& table, const CostModel& cost = {});

}  // namespace coeus
