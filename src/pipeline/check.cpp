// SPDX-License-Identifier: Apache-2.0
// The proof that a timetable can run, in three steps. Every action is there once and on the right rank. Each
// comes after what it needs in its own row, directly or through other ranks. And played together, the rows do
// not deadlock.
#include "coeus/base/error.hpp"
#include "play.hpp"

#include <algorithm>

namespace coeus {

namespace {

using pipeline::Need;
using pipeline::Played;

struct Place {
    int rank = -1, cell = -1;
    bool there() const { return rank >= 0; }
};

class Checker {
public:
    explicit Checker(const Timetable& table) : table_(table) {
        const size_t frames = size_t(table.stages()) * size_t(table.microbatches);
        for (auto& places : places_) places.resize(frames);
    }

    void run() {
        for (int rank = 0; rank < table_.ranks(); ++rank) each_action(rank, &Checker::check_identity);
        check_nothing_missing();
        for (int rank = 0; rank < table_.ranks(); ++rank) each_action(rank, &Checker::check_order);
        const Played played = pipeline::play(table_, {}, pipeline::Pairs::together);
        if (!played.complete()) explain_dead_lock(played);
    }

private:
    template <class Member>
    void each_action(int rank, Member member) {
        const Row& row = table_.rows[size_t(rank)];
        for (int cell = 0; cell < int(row.size()); ++cell)
            for (const Action& action : row[size_t(cell)]) (this->*member)(action, Place{rank, cell});
    }

    Place& place(ActionKind kind, int stage, int microbatch) {
        return places_[size_t(kind)][size_t(stage) * size_t(table_.microbatches) + size_t(microbatch)];
    }
    Place& place(const Action& action) { return place(action.kind, action.stage, action.microbatch); }

    [[noreturn]] void refuse(const Action& action, Place at, const std::string& why) const {
        throw ConfigError("{}: rank {}, cell {}: {} {}", table_.name, at.rank, at.cell, text_of(action), why);
    }

    static std::string where(Place place) { return fmt::format("rank {}, cell {}", place.rank, place.cell); }

    void check_identity(const Action& action, Place at) {
        if (!action.computes()) refuse(action, at, "is a message; a timetable of computations has none");
        if (action.stage < 0 || action.stage >= table_.stages())
            refuse(action, at,
                   fmt::format("is of stage {}; stages are 0 to {}", action.stage, table_.stages() - 1));
        if (action.microbatch < 0 || action.microbatch >= table_.microbatches)
            refuse(action, at,
                   fmt::format("is of micro-batch {}; micro-batches are 0 to {}", action.microbatch,
                               table_.microbatches - 1));
        const int owner = table_.placement.rank_of(action.stage);
        if (owner != at.rank)
            refuse(action, at, fmt::format("is of stage {}, which is on rank {}", action.stage, owner));
        Place& first = place(action);
        if (first.there()) refuse(action, at, "appears twice, first in cell " + std::to_string(first.cell));
        const auto not_beside = [&](ActionKind other) {
            const Place half = place(other, action.stage, action.microbatch);
            if (half.there())
                refuse(action, at,
                       fmt::format("repeats a half of {} in cell {}; a backward is B, or I and W",
                                   text_of(Action{other, action.stage, action.microbatch}), half.cell));
        };
        if (action.kind == ActionKind::backward) {
            not_beside(ActionKind::backward_input);
            not_beside(ActionKind::backward_weight);
        } else if (action.kind != ActionKind::forward) {
            not_beside(ActionKind::backward);
        }
        first = at;
    }

    void check_nothing_missing() {
        const auto missing = [&](ActionKind kind, int stage, int m, const char* rule) {
            throw ConfigError("{}: rank {}: {} is missing; {}", table_.name, table_.placement.rank_of(stage),
                              text_of(Action{kind, stage, m}), rule);
        };
        using enum ActionKind;
        for (int stage = 0; stage < table_.stages(); ++stage) {
            for (int m = 0; m < table_.microbatches; ++m) {
                if (!place(forward, stage, m).there())
                    missing(forward, stage, m, "each stage runs each micro-batch forward once");
                if (place(backward, stage, m).there()) continue;
                const bool input = place(backward_input, stage, m).there();
                const bool weight = place(backward_weight, stage, m).there();
                if (!input && !weight)
                    missing(backward, stage, m,
                            "each stage runs each micro-batch backward once, as B, or as I and W");
                if (!input) missing(backward_input, stage, m, "its other half W is present");
                if (!weight) missing(backward_weight, stage, m, "its other half I is present");
            }
        }
    }

    // An action is too early if anything that it needs, directly or through other ranks, is later in its row.
    // All stages of this rank are checked: F must be after F of the earlier stages; B and I after F of all
    // stages, and after B or I of the later stages; W after I.
    void check_order(const Action& action, Place at) {
        const auto after = [&](ActionKind kind, int stage) {
            const Place needed = place(kind, stage, action.microbatch);
            if (!needed.there() || needed.cell < at.cell) return;
            refuse(action, at,
                   fmt::format("needs {}, which {}", text_of(Action{kind, stage, action.microbatch}),
                               needed.cell > at.cell
                                   ? fmt::format("comes only in cell {}", needed.cell)
                                   : "is in the same pair; the actions of a pair must not need each other"));
        };
        using enum ActionKind;
        for (const int stage : table_.placement.stages_of(at.rank)) {
            if (action.kind == forward) {
                if (stage < action.stage) after(forward, stage);
            } else if (action.kind == backward_weight) {
                if (stage == action.stage) after(backward_input, stage);
            } else {
                after(forward, stage);
                if (stage > action.stage) after(backward, stage), after(backward_input, stage);
            }
        }
    }

    // The action whose need is not met, and the place of what it needs.
    struct Waiting {
        Action action;
        Place at;
        Action needed;
        Place needed_at;
    };
    Waiting waiting(const Played& played, int rank) {
        const int cell = played.stuck_at[size_t(rank)];
        for (const Action& action : table_.rows[size_t(rank)][size_t(cell)]) {
            const std::optional<Need> need = pipeline::need_of(action, table_.stages());
            if (!need) continue;
            using enum ActionKind;
            ActionKind kind = forward;
            if (!need->forward)
                kind = place(backward, need->stage, need->microbatch).there() ? backward : backward_input;
            const Action needed = {kind, need->stage, need->microbatch};
            const Place needed_at = place(needed);
            if (needed_at.cell >= played.stuck_at[size_t(needed_at.rank)])
                return {action, {rank, cell}, needed, needed_at};
        }
        throw LogicError("a rank waits although nothing is missing");
    }

    // Follows who waits for whom until a rank appears again, and reports the cycle from its earliest cell on.
    void explain_dead_lock(const Played& played) {
        int rank = 0;
        while (played.stuck_at[size_t(rank)] == int(table_.rows[size_t(rank)].size())) ++rank;
        for (int step = 0; step < table_.ranks(); ++step) rank = waiting(played, rank).needed_at.rank;
        std::vector<Waiting> circle;
        do {
            circle.push_back(waiting(played, rank));
            rank = circle.back().needed_at.rank;
        } while (rank != circle.front().at.rank);
        const auto earliest =
            std::ranges::min_element(circle, {}, [](const Waiting& w) { return w.at.cell; });
        std::rotate(circle.begin(), earliest, circle.end());
        std::string rest;
        for (size_t i = 1; i < circle.size(); ++i)
            rest += fmt::format("; there {} (cell {}) waits for {} ({})", text_of(circle[i].action),
                                circle[i].at.cell, text_of(circle[i].needed), where(circle[i].needed_at));
        refuse(circle[0].action, circle[0].at,
               fmt::format("waits forever for {} ({}){}", text_of(circle[0].needed),
                           where(circle[0].needed_at), rest));
    }

    const Timetable& table_;
    std::array<std::vector<Place>, 4> places_;  // by kind of computation: [stage, micro-batch]
};

}  // namespace

void check(const Timetable& table) {
    require(table.placement.ranks() == table.ranks() && table.microbatches > 0,
            "a timetable needs a row for each rank");
    Checker(table).run();
}

}  // namespace coeus
