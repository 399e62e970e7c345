// SPDX-License-Identifier: Apache-2.0
#include "play.hpp"

#include <algorithm>

namespace coeus::pipeline {

namespace {

constexpr int64_t not_done = -1;

class TimetablePlayer {
public:
    TimetablePlayer(const Timetable& table, const CostModel& cost, Pairs pairs)
        : table_(table),
          cost_(cost),
          pairs_(pairs),
          clock_(table.rows.size()),
          forward_end_(size_t(table.stages()) * size_t(table.microbatches), not_done),
          backward_end_(forward_end_.size(), not_done) {
        played_.rows.resize(table.rows.size());
        played_.stuck_at.resize(table.rows.size());
    }

    Played run() {
        bool moved = true;
        while (moved) {
            moved = false;
            for (int rank = 0; rank < table_.ranks(); ++rank)
                while (advance(rank)) moved = true;
        }
        for (size_t r = 0; r < table_.rows.size(); ++r)
            if (played_.stuck_at[r] < int(table_.rows[r].size())) played_.complete_ = false;
        return std::move(played_);
    }

private:
    size_t index(int stage, int microbatch) const {
        return size_t(stage) * size_t(table_.microbatches) + size_t(microbatch);
    }

    // The time when what the action needs was done: 0 if it needs nothing, not_done if it is not done yet.
    int64_t ready(const Action& action) const {
        const std::optional<Need> need = need_of(action, table_.stages());
        if (!need) return 0;
        return (need->forward ? forward_end_ : backward_end_)[index(need->stage, need->microbatch)];
    }

    // Runs the rank's next cell, or as much of a pair as is left and can run.
    bool advance(int rank) {
        const size_t r = size_t(rank);
        int& at = played_.stuck_at[r];
        if (at == int(table_.rows[r].size())) return false;
        const Cell& cell = table_.rows[r][size_t(at)];
        auto& done = played_.rows[r];
        const int first = done.empty() || done.back().cell != at ? 0 : 1;
        int64_t start = clock_[r];
        if (pairs_ == Pairs::together) {
            for (const Action& action : cell) {
                if (ready(action) == not_done) return false;
                start = std::max(start, ready(action));
            }
        }
        for (int i = first; i < cell.size(); ++i) {
            if (ready(cell[i]) == not_done) return false;
            start = std::max(start, ready(cell[i]));
            const int64_t end = start + cost_.of(cell[i].kind);
            done.push_back({cell[i], at, i == 1, start, end});
            if (pairs_ == Pairs::apart) note(cell[i], end);
            clock_[r] = start = end;
        }
        if (pairs_ == Pairs::together)
            for (const Action& action : cell) note(action, clock_[r]);
        ++at;
        return true;
    }

    void note(const Action& action, int64_t end) {
        if (action.kind == ActionKind::forward) forward_end_[index(action.stage, action.microbatch)] = end;
        if (action.gives_input_gradient()) backward_end_[index(action.stage, action.microbatch)] = end;
    }

    const Timetable& table_;
    CostModel cost_;
    Pairs pairs_;
    Played played_;
    std::vector<int64_t> clock_;
    std::vector<int64_t> forward_end_, backward_end_;  // [stage, micro-batch]
};

}  // namespace

std::optional<Need> need_of(const Action& action, int stages) {
    if (action.kind == ActionKind::forward && action.stage > 0)
        return Need{true, action.stage - 1, action.microbatch};
    if (action.gives_input_gradient() && action.stage + 1 < stages)
        return Need{false, action.stage + 1, action.microbatch};
    return std::nullopt;
}

Played play(const Timetable& table, const CostModel& cost, Pairs pairs) {
    return TimetablePlayer(table, cost, pairs).run();
}

}  // namespace coeus::pipeline
