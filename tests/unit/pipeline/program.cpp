// SPDX-License-Identifier: Apache-2.0
// Runs of programs: all ranks are simulated, with messages that are completed as late as possible. Nothing
// waits for ever, and nothing is overwritten before its use. The used memory is that of the simulator.
#include "coeus/pipeline/program.hpp"

#include "coeus/base/error.hpp"
#include "tables.hpp"

#include <algorithm>
#include <deque>
#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

// A message is completed when both ends have started it and one of them waits for it: only then are its bytes
// copied. Memory holds the text of the flow that it contains.
class Player {
public:
    explicit Player(const std::vector<Program>& programs) : programs_(programs) {
        for (const Program& program : programs)
            ranks_.push_back({.slots = std::vector<std::string>(size_t(program.slots)),
                              .outputs = std::vector<std::string>(size_t(program.frames)),
                              .owners = std::vector<std::string>(size_t(program.frames)),
                              .messages = std::vector<Message>(size_t(program.messages))});
    }

    /// "" or the error.
    std::string run() {
        bool moved = true;
        while (moved && problem_.empty()) {
            moved = false;
            for (size_t rank = 0; rank < ranks_.size(); ++rank)
                while (problem_.empty() && advance(rank)) moved = true;
        }
        for (size_t rank = 0; rank < ranks_.size() && problem_.empty(); ++rank)
            if (ranks_[rank].at < programs_[rank].steps.size())
                problem_ = fmt::format("rank {} waits for ever at {}", rank,
                                       text_of(programs_[rank].steps[ranks_[rank].at].action));
        return problem_;
    }

private:
    struct Message {
        bool begun = false, through = true;
        std::string* memory = nullptr;
        Message* other = nullptr;
    };
    struct Rank {
        std::vector<std::string> slots, outputs, owners;
        std::vector<Message> messages;
        size_t at = 0;
    };
    struct Channel {
        std::deque<Message*> sends, receives;  // started, not matched
    };

    // Whether the message is complete.
    bool wait(size_t rank, int number) {
        if (number < 0) return true;
        Message& message = ranks_[rank].messages[size_t(number)];
        if (message.through) return true;
        if (message.other == nullptr) return false;
        Message &send = message.begun ? message : *message.other, &receive = *send.other;
        *receive.memory = *send.memory;
        send.through = receive.through = true;
        return true;
    }

    void expect(const Action& action, const std::string& is, const std::string& should) {
        if (is != should)
            problem_ = fmt::format("{} finds \"{}\" where \"{}\" is due", text_of(action), is, should);
    }

    bool advance(size_t rank) {
        Rank& r = ranks_[rank];
        const Program& program = programs_[rank];
        if (r.at == program.steps.size()) {
            bool moved = false;
            for (size_t i = 0; i < r.messages.size(); ++i)
                if (!r.messages[i].through && wait(rank, int(i))) moved = true;
            return moved;
        }
        const ProgramStep& step = program.steps[r.at];
        if (!wait(rank, step.after) || !wait(rank, step.sent)) return false;
        const Action& a = step.action;
        const std::string own = fmt::format("{}-{}", a.stage, a.microbatch),
                          before = fmt::format("output of {}-{}", a.stage - 1, a.microbatch),
                          behind = fmt::format("gradient of {}-{}", a.stage + 1, a.microbatch);
        std::string* slot = step.slot < 0 ? nullptr : &r.slots[size_t(step.slot)];
        if (a.computes()) {
            std::string &owner = r.owners[size_t(step.frame)], &output = r.outputs[size_t(step.frame)];
            expect(a, owner, a.kind == ActionKind::forward ? "" : own);
            if (a.kind == ActionKind::forward) {
                if (step.input_frame >= 0) expect(a, r.outputs[size_t(step.input_frame)], before);
                if (slot) expect(a, *slot, before);
                owner = own;
                output = "output of " + own;
            } else if (a.gives_input_gradient() && slot) {
                if (!is_last(rank, a.stage)) expect(a, *slot, behind);
                *slot = "gradient of " + own;
            }
            if (step.ends_frame) owner.clear(), output.clear();
        } else {
            Message& message = r.messages[size_t(step.message)];
            message.through = false;
            message.begun = a.sends();  // which end it is
            message.memory = a.kind == ActionKind::send_forward ? &r.outputs[size_t(step.frame)] : slot;
            if (a.sends())
                expect(a, *message.memory,
                       (a.kind == ActionKind::send_forward ? "output of " : "gradient of ") + own);
            Channel& channel = channels_[a.channel()];
            (a.sends() ? channel.sends : channel.receives).push_back(&message);
            if (!channel.sends.empty() && !channel.receives.empty()) {
                channel.sends.front()->other = channel.receives.front();
                channel.receives.front()->other = channel.sends.front();
                channel.sends.pop_front();
                channel.receives.pop_front();
            }
        }
        ++r.at;
        return true;
    }

    bool is_last(size_t, int stage) const {
        int last = 0;
        for (const Program& program : programs_) last = std::max(last, program.stages.back());
        return stage == last;
    }

    const std::vector<Program>& programs_;
    std::vector<Rank> ranks_;
    std::map<int, Channel> channels_;
    std::string problem_;
};

// All messages of a rank in one line, as NCCL runs them. A message (or two that start together) starts when
// all earlier messages and computations are complete, and completes when the same message is first in the
// other rank's line.
class LinePlayer {
public:
    explicit LinePlayer(const std::vector<Program>& programs) : programs_(programs), ranks_(programs.size()) {
        for (size_t rank = 0; rank < programs.size(); ++rank)
            ranks_[rank].through.resize(size_t(programs[rank].messages));
    }

    /// "" or the error.
    std::string run() {
        bool moved = true;
        while (moved && problem_.empty()) {
            moved = false;
            for (size_t rank = 0; rank < ranks_.size(); ++rank)
                while (problem_.empty() && (give(rank) || meet(rank))) moved = true;
        }
        for (size_t rank = 0; rank < ranks_.size() && problem_.empty(); ++rank)
            if (ranks_[rank].at < programs_[rank].steps.size() || !ranks_[rank].line.empty())
                problem_ = fmt::format("rank {} waits for ever", rank);
        return problem_;
    }
    int pairs() const { return pairs_; }

private:
    using Launch = std::vector<const ProgramStep*>;
    struct Rank {
        size_t at = 0;
        std::vector<bool> through;
        std::vector<int> awaited;  // by the next computation
        std::deque<Launch> line;
    };

    bool is_through(const Rank& r, int message) const { return message < 0 || r.through[size_t(message)]; }

    // Runs the next step if it need not wait. Everything in the line that a message needs comes before it.
    bool give(size_t rank) {
        Rank& r = ranks_[rank];
        const std::vector<ProgramStep>& steps = programs_[rank].steps;
        if (r.at == steps.size()) return false;
        const ProgramStep& step = steps[r.at];
        if (step.action.computes()) {
            r.awaited.insert(r.awaited.end(), {step.after, step.sent});
            if (!std::ranges::all_of(r.awaited, [&](int message) { return is_through(r, message); }))
                return false;
            r.awaited.clear();
        } else if (const bool second = r.at > 0 && steps[r.at - 1].with_next; second) {
            const ProgramStep& first = steps[r.at - 1];
            if (step.after == first.message || (step.slot >= 0 && step.slot == first.slot))
                problem_ = text_of(step.action) + " takes the slot of what begins with it";
            r.line.back().push_back(&step);
        } else {
            r.line.push_back({&step});
        }
        if (!step.action.computes()) r.awaited.push_back(step.after);
        ++r.at;
        return true;
    }

    bool meet(size_t rank) {
        Rank& r = ranks_[rank];
        if (r.line.empty() || r.line.front().back()->with_next) return false;
        const Launch launch = r.line.front();
        Rank& other = ranks_[size_t(launch[0]->action.peer)];
        if (other.line.empty() || other.line.front().back()->with_next) return false;
        const Launch theirs = other.line.front();
        if (size_t(theirs[0]->action.peer) != rank) return false;
        for (size_t i = 0; i < std::max(launch.size(), theirs.size()); ++i) {
            const Action a = launch[std::min(i, launch.size() - 1)]->action,
                         b = theirs[std::min(i, theirs.size() - 1)]->action;
            if (launch.size() != theirs.size() || a.channel() != b.channel() || a.sends() == b.sends() ||
                a.microbatch != b.microbatch)
                problem_ = fmt::format("{} meets {}", text_of(a), text_of(b));
        }
        pairs_ += launch.size() == 2;
        for (const ProgramStep* step : launch) r.through[size_t(step->message)] = true;
        for (const ProgramStep* step : theirs) other.through[size_t(step->message)] = true;
        r.line.pop_front();
        other.line.pop_front();
        return true;
    }

    const std::vector<Program>& programs_;
    std::vector<Rank> ranks_;
    std::string problem_;
    int pairs_ = 0;
};

std::vector<Program> programs_of(const Timetable& table, int first_trained = 0) {
    std::vector<Program> programs;
    const LoweredTimetable lowered = lower(table, {}, first_trained);
    for (int rank = 0; rank < table.ranks(); ++rank) programs.push_back(program_of(lowered, rank));
    return programs;
}

}  // namespace

TEST_CASE("every accepted shape: its programs run, in the frames that the simulator counts") {
    int tables = 0;
    for (const Schedule& schedule : schedules()) {
        for_each_shape(10, [&](const PipelineShape& shape) {
            if (!schedule.accepts(shape) || shape.virtual_stages > 3) return;
            INFO(schedule.name << " " << shape.ranks << " " << shape.microbatches << " "
                               << shape.virtual_stages);
            const Timetable table = schedule.timetable(shape);
            const std::vector<Program> programs = programs_of(table);
            REQUIRE(Player(programs).run() == "");
            const Simulation simulation = simulate(table);
            for (size_t rank = 0; rank < programs.size(); ++rank)
                REQUIRE(programs[rank].frames == simulation.peak_frames[rank]);
            ++tables;
        });
    }
    CHECK(tables > 500);
}

TEST_CASE("every accepted shape: its messages could be one line on each rank") {
    int pairs = 0;
    for (const Schedule& schedule : schedules()) {
        for_each_shape(10, [&](const PipelineShape& shape) {
            if (!schedule.accepts(shape) || shape.virtual_stages > 3) return;
            INFO(schedule.name << " " << shape.ranks << " " << shape.microbatches << " "
                               << shape.virtual_stages);
            const std::vector<Program> programs = programs_of(schedule.timetable(shape));
            LinePlayer player(programs);
            REQUIRE(player.run() == "");
            pairs += player.pairs();
        });
    }
    CHECK(pairs > 1000);
}

TEST_CASE("stages that train nothing get no gradients, in every accepted shape") {
    int tables = 0;
    for (const Schedule& schedule : schedules()) {
        for_each_shape(6, [&](const PipelineShape& shape) {
            if (!schedule.accepts(shape) || shape.virtual_stages > 3) return;
            const Timetable table = schedule.timetable(shape);
            for (int first = 1; first < table.stages(); ++first) {
                INFO(schedule.name << " " << shape.ranks << " " << shape.microbatches << " "
                                   << shape.virtual_stages << " from stage " << first);
                for (const Queues queues : {Queues::one, Queues::per_channel})
                    prove_unbuffered(lower(table, {}, first), queues, first);
                const std::vector<Program> programs = programs_of(table, first);
                REQUIRE(Player(programs).run() == "");
                REQUIRE(LinePlayer(programs).run() == "");
                for (const Program& program : programs)
                    for (const ProgramStep& step : program.steps) {
                        const Action& action = step.action;
                        if (action.kind == ActionKind::send_backward) REQUIRE(action.stage > first);
                        if (action.kind == ActionKind::receive_backward) REQUIRE(action.stage >= first);
                        if (action.gives_input_gradient() && action.stage < first) REQUIRE(step.slot == -1);
                    }
                ++tables;
            }
        });
    }
    CHECK(tables > 200);
}

TEST_CASE("a line of messages in another order dead-locks") {
    std::vector<Program> programs = programs_of(table_of("1F1B", 2, 4, 1));
    CHECK(LinePlayer(programs).run() == "");
    std::vector<ProgramStep>& steps = programs[1].steps;
    const auto send = std::ranges::find_if(steps, [](const ProgramStep& s) { return s.action.sends(); });
    // together on this rank only
    (send - 1)->with_next = !(send - 1)->action.computes();
    send->with_next = !send->with_next;
    CHECK(LinePlayer(programs).run() != "");
}

TEST_CASE("a program without its waits overwrites data before they are sent") {
    std::vector<Program> programs = programs_of(table_of("GPipe", 4, 8, 1));
    CHECK(Player(programs).run() == "");
    for (ProgramStep& step : programs.back().steps)
        if (step.action.kind == ActionKind::backward) step.after = -1;
    CHECK(Player(programs).run() != "");
}

TEST_CASE("one rank with one stage exchanges nothing and has one frame") {
    const Program program = program_of(lower(one_stage()), 0);
    CHECK(program.frames == 1);
    CHECK(program.slots == 0);
    CHECK(program.messages == 0);
    CHECK(program.steps.size() == 2);
    CHECK(program.runs_whole[0]);
    CHECK_FALSE(program.runs_halves[0]);
    CHECK_FALSE(program.runs_paired[0]);
}

TEST_CASE("two halves of a local batch: two pairs of one stage, each half in a frame of its own") {
    const Timetable halves = two_halves();
    CHECK(halves.has_halves());
    CHECK_FALSE(one_stage().has_halves());
    CHECK_FALSE(table_of("DualPipeV", 2, 4, 2).has_halves());
    const Program program = program_of(lower(halves), 0);
    CHECK(program.frames == 2);
    CHECK(program.messages == 0);
    CHECK(program.runs_paired[0]);
    CHECK(program.runs_paired_backwards[0]);
    REQUIRE(program.steps.size() == 4);
    for (size_t i = 0; i < 4; ++i) {
        const ProgramStep& step = program.steps[i];
        CHECK(step.is_half);
        CHECK(step.pairs_with_next == (i % 2 == 0));
        CHECK(step.frame == program.steps[(i + 2) % 4].frame);
        CHECK(step.last_use == (i % 2 == 1));
    }
    const Program dualpipe = program_of(lower(table_of("DualPipeV", 2, 4, 2)), 0);
    CHECK_FALSE(dualpipe.runs_paired_backwards[0]);
    CHECK(std::ranges::none_of(dualpipe.steps, &ProgramStep::is_half));
}

TEST_CASE("a computation knows the stage whose forward is next on its rank, also in the next local batch") {
    const auto text_of_rank = [](const Timetable& table, int rank) {
        std::string text;
        for (const ProgramStep& step : program_of(lower(table), rank).steps) {
            if (!step.action.computes()) {
                CHECK(step.forward_next == -1);
                continue;
            }
            text += fmt::format("{}{}", text.empty() ? "" : " ", text_of(step.action));
            if (step.forward_next >= 0) text += fmt::format(">{}", step.forward_next);
            if (step.is_last) text += "|";
        }
        return text;
    };
    CHECK(text_of_rank(one_stage(), 0) == "0F0 0B0>0|");
    CHECK(text_of_rank(table_of("1F1B", 2, 3, 1), 0) == "0F0>0 0F1 0B0>0 0F2 0B1 0B2>0|");
    CHECK(text_of_rank(table_of("1F1B", 2, 3, 1), 1) == "1F0 1B0>0 1F1 1B1>0 1F2 1B2>0|");
    CHECK(text_of_rank(table_of("Interleaved1F1B", 2, 2, 2), 1) ==
          "1F0>0 1F1>1 3F0 3B0>1 3F1 3B1 1B0 1B1>0|");
}

TEST_CASE("validation runs the stages in order") {
    for (const PipelineShape shape : {PipelineShape{3, 1, 1}, PipelineShape{2, 1, 3}}) {
        std::vector<Program> programs;
        for (int rank = 0; rank < shape.ranks; ++rank)
            programs.push_back(forward_program(Placement::loop(shape), rank));
        CHECK(Player(programs).run() == "");
        for (const Program& program : programs) CHECK(program.frames == shape.virtual_stages);
    }
    const Program back = forward_program(Placement::v_shaped({2, 1, 2}), 1);
    CHECK(back.messages == 2);  // stages 1 and 2 are both on this rank
}
