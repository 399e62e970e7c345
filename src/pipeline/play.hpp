// SPDX-License-Identifier: Apache-2.0
// Plays a timetable of computations against a clock: the common part of simulate, check and lower.
#pragma once

#include "coeus/pipeline/simulate.hpp"

#include <optional>

namespace coeus::pipeline {

/// What an action needs that another row (or its own) may not have done yet. There is at most one such thing,
/// since an action's own F or I is before it in its row. The first stage's F, the last stage's B, and W need
/// nothing.
struct Need {
    bool forward;  ///< F of that stage; else its B or I
    int stage;
    int microbatch;
};
std::optional<Need> need_of(const Action& action, int stages);

enum class Pairs {
    apart,    ///< each action of a pair starts when it can, and is done when it ends
    together  ///< a pair starts when both actions can, and both are done at the end of the cell
};

struct Played {
    std::vector<std::vector<TimedAction>> rows;
    std::vector<int> stuck_at;  ///< by rank: the first cell that was not run; the row's length if none
    bool complete() const { return complete_; }
    bool complete_ = true;
};

/// Never throws. Ends when everything is done or nothing can proceed.
Played play(const Timetable& table, const CostModel& cost, Pairs pairs);

}  // namespace coeus::pipeline
