// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/simulate.hpp"

#include "coeus/base/error.hpp"
#include "play.hpp"

#include <algorithm>

namespace coeus {

int64_t CostModel::of(ActionKind kind) const {
    switch (kind) {
        case ActionKind::forward: return forward;
        case ActionKind::backward: return backward;
        case ActionKind::backward_input: return backward_input;
        case ActionKind::backward_weight: return backward_weight;
        default: return 0;
    }
}

Simulation simulate(const Timetable& table, const CostModel& cost) {
    check(table);
    pipeline::Played played = pipeline::play(table, cost, pipeline::Pairs::apart);
    require(played.complete(), "a timetable that runs with pairs started together must run");

    Simulation result;
    result.rows = std::move(played.rows);
    result.peak_frames_of_stage.resize(size_t(table.stages()));
    int64_t busy_in_all = 0;
    std::vector<int> alive_of_stage(size_t(table.stages()));
    for (const auto& row : result.rows) {
        int64_t busy = 0;
        int alive = 0, peak = 0, owed = 0, peak_owed = 0;
        for (const TimedAction& timed : row) {
            const ActionKind kind = timed.action.kind;
            const size_t stage = size_t(timed.action.stage);
            busy += timed.end - timed.start;
            if (kind == ActionKind::forward) ++alive, ++alive_of_stage[stage];
            if (kind == ActionKind::backward_input) ++owed;
            peak = std::max(peak, alive);
            result.peak_frames_of_stage[stage] =
                std::max(result.peak_frames_of_stage[stage], alive_of_stage[stage]);
            peak_owed = std::max(peak_owed, owed);
            if (timed.action.ends_frame()) --alive, --alive_of_stage[stage];
            if (kind == ActionKind::backward_weight) --owed;
        }
        result.busy.push_back(busy);
        result.peak_frames.push_back(peak);
        result.peak_owed_weights.push_back(peak_owed);
        result.makespan = std::max(result.makespan, row.back().end);
        busy_in_all += busy;
    }
    result.bubble_fraction = 1 - double(busy_in_all) / double(table.ranks() * result.makespan);
    return result;
}

}  // namespace coeus
