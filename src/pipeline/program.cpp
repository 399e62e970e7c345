// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/program.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace coeus {

namespace {

// A free number, with the message that must be complete before the number is used again (-1: none). The
// numbers that have been free longest come first.
struct Free {
    int number, after;
};

class ProgramWriter {
public:
    // `slots`: how many there are; 0: counts how many are in use at once if sends take no time.
    ProgramWriter(const LoweredTimetable& table, int rank, int slots)
        : placement_(table.placement),
          first_trained_(table.first_trained),
          rank_(rank),
          counting_(slots == 0) {
        program_.stages = placement_.stages_of(rank);
        program_.microbatches = table.microbatches;
        program_.slots = slots;
        program_.runs_whole.resize(program_.stages.size());
        program_.runs_halves.resize(program_.stages.size());
        program_.runs_paired.resize(program_.stages.size());
        program_.runs_paired_backwards.resize(program_.stages.size());
        for (int slot = 0; slot < slots; ++slot) free_slots_.push_back({slot, -1});
        flows_.resize(size_t(table.stages()) * size_t(table.microbatches));
    }

    // `cell`: with the action.
    void add(const Action& action, bool with_next, const Cell& cell) {
        const bool pairs_with_next = cell.is_pair() && &action == cell.begin();
        ProgramStep step = {
            .action = action,
            .stage = int(std::ranges::find(program_.stages, action.stage) - program_.stages.begin()),
            .with_next = with_next,
            .pairs_with_next = pairs_with_next,
            .is_half = cell.is_halves()};
        if (pairs_with_next)
            (action.kind == ActionKind::forward ? program_.runs_paired
                                                : program_.runs_paired_backwards)[size_t(step.stage)] = true;
        switch (action.kind) {
            case ActionKind::forward: forward(step); break;
            case ActionKind::backward:
            case ActionKind::backward_input: backward(step); break;
            case ActionKind::backward_weight: break;
            default: message(step);
        }
        if (action.computes()) step.frame = flow(action).frame;
        if (action.ends_frame()) end_frame(step);
        if (!pairs_with_next && paired_input_ >= 0) give_back(std::exchange(paired_input_, -1), -1);
        program_.steps.push_back(step);
    }

    Program program() {
        find_next_forwards();
        std::vector<bool> forward(program_.stages.size()), end(program_.stages.size());  // seen later
        for (auto step = program_.steps.rbegin(); step != program_.steps.rend(); ++step) {
            if (!step->action.computes() || step->action.kind == ActionKind::backward_input) continue;
            auto seen = (step->ends_frame ? end : forward)[size_t(step->stage)];
            step->last_use = !seen;
            seen = true;
        }
        return std::move(program_);
    }

private:
    void find_next_forwards() {
        const auto computes = [](const ProgramStep& step) { return step.action.computes(); };
        const auto first = std::ranges::find_if(program_.steps, computes);
        if (first == program_.steps.end()) return;
        const auto forward_of = [](const ProgramStep& step) {
            return step.action.kind == ActionKind::forward ? step.stage : -1;
        };
        int next = forward_of(*first);
        bool is_last = true;
        for (auto step = program_.steps.rbegin(); step != program_.steps.rend(); ++step) {
            if (!computes(*step)) continue;
            step->is_last = std::exchange(is_last, false);
            step->forward_next = std::exchange(next, forward_of(*step));
        }
    }

    // The places of a (stage, micro-batch)'s data.
    struct Flow {
        int frame = -1;
        int input = -1, input_message = -1;        // a slot, and the message that fills it
        int gradient = -1, gradient_message = -1;  // a slot, and the message that fills it
        int sent = -1;                             // message that sends the output
    };
    Flow& flow(int stage, int microbatch) {
        return flows_[size_t(stage) * size_t(program_.microbatches) + size_t(microbatch)];
    }
    Flow& flow(const Action& action) { return flow(action.stage, action.microbatch); }
    bool is_here(int stage) const {
        return stage >= 0 && stage < placement_.stages() && placement_.rank_of(stage) == rank_;
    }

    void forward(ProgramStep& step) {
        Flow& f = flow(step.action);
        if (free_frames_.empty()) free_frames_.push_back(program_.frames++);
        f.frame = free_frames_.back();
        free_frames_.pop_back();
        if (step.action.stage == 0) return;
        if (is_here(step.action.stage - 1)) {
            step.input_frame = flow(step.action.stage - 1, step.action.microbatch).frame;
            return;
        }
        step.slot = f.input;
        step.after = f.input_message;
        if (step.pairs_with_next)  // the backward of the pair may write before the input is read
            paired_input_ = f.input;
        else
            give_back(f.input, -1);
    }

    void backward(ProgramStep& step) {
        const Action& action = step.action;
        Flow& f = flow(action);
        (action.kind == ActionKind::backward ? program_.runs_whole
                                             : program_.runs_halves)[size_t(step.stage)] = true;
        const bool last = action.stage + 1 == placement_.stages(), is_needed = action.stage > first_trained_;
        if (action.stage < first_trained_ || (last && !is_needed)) return;
        if (last)
            take_slot(f.gradient, step.after);
        else
            step.after = f.gradient_message;
        step.slot = f.gradient;
        if (!is_needed)
            give_back(f.gradient, -1);
        else if (is_here(action.stage - 1))
            flow(action.stage - 1, action.microbatch).gradient = f.gradient;
    }

    void message(ProgramStep& step) {
        Flow& f = flow(step.action);
        step.message = program_.messages++;
        using enum ActionKind;
        switch (step.action.kind) {
            case send_forward:
                step.frame = f.frame;
                f.sent = step.message;
                break;
            case receive_forward:
                take_slot(f.input, step.after);
                step.slot = f.input;
                f.input_message = step.message;
                break;
            case receive_backward:
                take_slot(f.gradient, step.after);
                step.slot = f.gradient;
                f.gradient_message = step.message;
                break;
            default: step.slot = f.gradient; give_back(f.gradient, step.message);
        }
    }

    void end_frame(ProgramStep& step) {
        const Flow& f = flow(step.action);
        step.sent = f.sent;
        step.ends_frame = true;
        free_frames_.push_back(f.frame);
    }

    void take_slot(int& slot, int& after) {
        if (free_slots_.empty()) {
            require(counting_, "a pipeline rank must have as many slots as it uses");
            free_slots_.push_back({program_.slots++, -1});
        }
        slot = free_slots_.front().number;
        after = free_slots_.front().after;
        free_slots_.pop_front();
    }
    void give_back(int slot, int after) {
        if (counting_) after = -1;
        free_slots_.push_back({slot, after});
    }

    const Placement& placement_;
    int first_trained_;
    int rank_;
    bool counting_;
    Program program_;
    std::vector<Flow> flows_;  // [stage, micro-batch]
    std::vector<int> free_frames_;
    int paired_input_ = -1;  // slot of the forward of the pair whose backward comes next
    std::deque<Free> free_slots_;
};

// The other end of a message of this rank.
Action other_end(const Action& message, int rank) {
    using enum ActionKind;
    switch (message.kind) {
        case send_forward: return {receive_forward, message.stage + 1, message.microbatch, rank};
        case receive_forward: return {send_forward, message.stage - 1, message.microbatch, rank};
        case send_backward: return {receive_backward, message.stage - 1, message.microbatch, rank};
        default: return {send_backward, message.stage + 1, message.microbatch, rank};
    }
}

bool is_message(const Cell& cell) {
    return cell.size() == 1 && !cell[0].computes();
}

// The entries of a row whose message can begin together with the next one: both are between the same two
// ranks, in opposite directions and adjacent in both rows, and the first is not in a pair with the one
// before. The other rank finds the same pairs. As one event a pair takes the place of both messages in the
// common sequence of all rows, since nothing is between them.
std::vector<bool> with_next(const LoweredTimetable& lowered, int rank) {
    const Row& row = lowered.rows[size_t(rank)];
    std::vector<bool> together(row.size());
    std::vector<ptrdiff_t> last(lowered.rows.size());  // by rank: where its other end of a message was found
    for (size_t i = 0; i + 1 < row.size(); ++i) {
        if ((i > 0 && together[i - 1]) || !is_message(row[i]) || !is_message(row[i + 1])) continue;
        const Action first = row[i][0], second = row[i + 1][0];
        if (first.peer != second.peer || first.sends() == second.sends()) continue;
        const Row& theirs = lowered.rows[size_t(first.peer)];
        ptrdiff_t& seen = last[size_t(first.peer)];
        const auto found = std::find(theirs.begin() + seen, theirs.end(), Cell(other_end(first, rank)));
        seen = found - theirs.begin();
        together[i] = found != theirs.end() && found + 1 != theirs.end() &&
                      *(found + 1) == Cell(other_end(second, rank));
    }
    return together;
}

Program written(const LoweredTimetable& table, int rank, const std::vector<bool>& together) {
    const Row& row = table.rows[size_t(rank)];
    const auto write = [&](int slots) {
        ProgramWriter writer(table, rank, slots);
        for (size_t i = 0; i < row.size(); ++i)
            for (const Action& action : row[i]) writer.add(action, together[i], row[i]);
        return writer.program();
    };
    const Program counted = write(0);
    return counted.slots == 0 ? counted : write(counted.slots + 1);
}

}  // namespace

Program program_of(const LoweredTimetable& table, int rank) {
    return written(table, rank, with_next(table, rank));
}

Program forward_program(const Placement& placement, int rank) {
    LoweredTimetable table = {{"validation", placement, 1, {}}};
    table.rows.resize(size_t(rank) + 1);
    Row& row = table.rows[size_t(rank)];
    using enum ActionKind;
    for (const int stage : placement.stages_of(rank)) {
        const auto peer = [&](int other) {
            return other < 0 || other == placement.stages() ? rank : placement.rank_of(other);
        };
        if (peer(stage - 1) != rank) row.emplace_back(Action{receive_forward, stage, 0, peer(stage - 1)});
        row.emplace_back(Action{forward, stage, 0});
        if (peer(stage + 1) != rank) row.emplace_back(Action{send_forward, stage, 0, peer(stage + 1)});
    }
    return written(table, rank, std::vector<bool>(row.size()));
}

}  // namespace coeus
