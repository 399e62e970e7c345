// SPDX-License-Identifier: Apache-2.0
// Plays a timetable of computations against a clock: what simulate, check and lower have in common.
#pragma once

#include "coeus/pipeline/simulate.hpp"

#include <optional>

namespace coeus::pipeline {

/// What an action needs that another row (or its own) may not have done: at most one thing per action, since
/// an action's own F or I stands before it in its row. Nothing for the first stage's F, the last stage's B
/// and for W.
struct Need {
    bool forward;  ///< F of that stage, else its B or I
    int stage;
    int microbatch;
};
std::optional<Need> need_of(const Action& action, int stages);

enum class Pairs {
    apart,    ///< each action of a pair starts when it can, and is done at its own end
    together  ///< both can start before either does, and both are done at the end of the cell
};

struct Played {
    std::vector<std::vector<TimedAction>> rows;
    std::vector<int> stuck_at;  ///< per rank: the first cell not run; the row's length where all were
    bool complete() const { return complete_; }
    bool complete_ = true;
};

/// Never throws; ends when all is done or nothing can move.
Played play(const Timetable& table, const CostModel& cost, Pairs pairs);

}  // namespace coeus::pipeline
