// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/executor.hpp"

#include "coeus/device/named_range.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Reports an action to the observer, if there is one.
class ObservedAction {
public:
    ObservedAction(ActionObserver* observer, const Action& action) : observer_(observer) {
        if (observer_) observer_->begin_action(action);
    }
    ~ObservedAction() {
        if (observer_) observer_->end_action();
    }
    ObservedAction(const ObservedAction&) = delete;
    ObservedAction& operator=(const ObservedAction&) = delete;

private:
    ActionObserver* observer_;
};

}  // namespace

Executor::Executor(const LoweredTimetable& table, int rank, std::vector<Stage> stages, Exec& exec)
    : exec_(exec),
      stages_(std::move(stages)),
      training_(program_of(table, rank)),
      validation_(forward_program(table.placement, rank)) {
    require(stages_.size() == training_.stages.size(), "an executor needs the stages of its rank");
}

Executor::Executor(const Placement& placement, int rank, std::vector<Stage> stages, Exec& exec)
    : exec_(exec),
      stages_(std::move(stages)),
      training_(forward_program(placement, rank)),
      validation_(training_) {
    require(stages_.size() == training_.stages.size(), "an executor needs the stages of its rank");
}

void Executor::allocate(const ExecutorMemory& memory, const Communicator& pipeline, Sends sends) {
    const Memory& place = exec_.device->memory();
    frames_.reserve(size_t(training_.frames));
    for (int i = 0; i < training_.frames; ++i)
        frames_.emplace_back(bytes_of_frame(memory, i), memory.frame_entries, memory.frame_owed, place,
                             memory.frame_on_host, exec_.device->staging());
    outputs_.resize(frames_.size());
    slots_ = Buffer(memory.slots, "pipeline buffers", place);
    flow_tensors_ = memory.flow_tensors;
    messages_ = std::make_unique<PointToPoint>(
        pipeline, std::max(training_.messages, validation_.messages) * flow_tensors_, sends, exec_);
}

int64_t Executor::bytes_of_frame(const ExecutorMemory& memory, int number) const {
    return number < validation_.frames ? std::max(memory.frame, memory.validation_frame) : memory.frame;
}

int64_t Executor::frame_bytes(const ExecutorMemory& memory) const {
    int64_t bytes = 0;
    for (int i = 0; i < training_.frames; ++i) bytes += bytes_of_frame(memory, i);
    return bytes;
}

int64_t Executor::frame_bytes_on_host(const ExecutorMemory& memory) const {
    return training_.frames * memory.frame_on_host;
}

int64_t Executor::slot_bytes(const Flow& training_flow, const Flow& validation_flow) const {
    return std::max(training_.slots * training_flow.bytes(), validation_.slots * validation_flow.bytes());
}

void Executor::wait(int message) {
    if (message < 0) return;
    const ObservedExchange noted(exec_, Exchange::wait_for_stage);
    for (int i = 0; i < flow_tensors_; ++i) messages_->wait(message * flow_tensors_ + i);
}

Flow Executor::slot(int number, const Flow& flow) const {
    return flow.placed_at(slots_.data() + number * flow.bytes());
}

// Sends one message for each tensor, in the same order on both sides.
void Executor::send(const ProgramStep& step, const Flow& flow) {
    require(flow.count() == flow_tensors_, "a stage sends a different number of tensors than planned");
    int number = step.message * flow_tensors_;
    for (const Tensor& tensor : flow.all())
        messages_->send(number++, tensor, step.action.peer, step.action.channel());
}

void Executor::receive(const ProgramStep& step, const Flow& flow) {
    int number = step.message * flow_tensors_;
    for (const Tensor& tensor : flow.all())
        messages_->receive(number++, tensor, step.action.peer, step.action.channel());
}

// The computation of a step has its turn.
void Executor::begin(Turn& turn) {
    running_ = &turn;
    const ProgramStep& step = *turn.step;
    const Stage& stage = stages_[size_t(step.stage)];
    stage.expect_last_uses(last_ && step.last_use);
    stage.expect_other_half(turns_ && step.is_half && step.pairs_with_next);
    const bool forward_follows = step.forward_next >= 0 && !(last_ && step.is_last);
    stage.expect_forward(forward_follows ? &stages_[size_t(step.forward_next)] : nullptr);
}

void Executor::take_turns_in_pairs() {
    turns_ = std::make_unique<Turns>();
    for (Stage& stage : stages_) stage.set_before_segments([this] { begin_segment(); });
}

void Executor::other_of_pair() {
    if (!turns_ || !turns_->are_taken()) return;
    Turn& here = *running_;
    here.has_changed = true;
    messages_->progress();
    if (action_observer_) action_observer_->end_action();
    turns_->change();
    begin(here);  // after the other one's turn
    if (action_observer_) action_observer_->begin_action(here.step->action);
}

// So the halves are never more than one segment apart, and two units at a time are in use.
void Executor::begin_segment() {
    if (!running_ || !running_->step->is_half) return;
    if (!running_->has_changed) other_of_pair();
    running_->has_changed = false;
}

template <class Compute>
void Executor::run_step(const ProgramStep& step, const Flow& flow, const ContextOf& context,
                        const Compute& compute, bool paired) {
    const Action& action = step.action;
    Turn turn = {.step = &step};
    begin(turn);
    const ObservedAction noted(action_observer_, action);
    const NamedRange range("{} stage {} micro_batch {}", name_of(action.kind), action.stage,
                           action.microbatch);
    Ctx c = context(action.microbatch, frames_[size_t(step.frame)], paired);
    const Flow in = step.input_frame >= 0 ? outputs_[size_t(step.input_frame)]
                    : step.slot >= 0      ? slot(step.slot, flow)
                                          : Flow{};
    const Flow out = compute(step, c, in);
    if (action.kind == ActionKind::forward) outputs_[size_t(step.frame)] = out;
    running_ = nullptr;
}

void Executor::end_frame(const ProgramStep& step) {
    if (!step.ends_frame) return;
    wait(step.sent);
    frames_[size_t(step.frame)].rewind({0, 0});
}

template <class Compute>
void Executor::run(const Program& program, const Flow& flow, const ContextOf& context,
                   const Compute& compute) {
    for (size_t i = 0; i < program.steps.size(); ++i) {
        const ProgramStep& step = program.steps[i];
        const Action& action = step.action;
        wait(step.after);
        if (turns_ && step.pairs_with_next) {
            const ProgramStep& next = program.steps[++i];
            wait(next.after);
            const NamedRange::Silence names_overlap;
            // a backward begins: its first exchange is under way while the forward computes attention
            const ProgramStep &first = step.is_half ? step : next, &second = step.is_half ? next : step;
            turns_->run([&] { run_step(first, flow, context, compute, false); },
                        [&] { run_step(second, flow, context, compute, true); });
            end_frame(first);
            end_frame(second);
            messages_->progress();
        } else if (action.computes()) {
            run_step(step, flow, context, compute, false);
            end_frame(step);
            messages_->progress();
        } else if (action.sends()) {
            send(step, action.kind == ActionKind::send_forward ? outputs_[size_t(step.frame)]
                                                               : slot(step.slot, flow));
        } else {
            receive(step, slot(step.slot, flow));
        }
        if (!step.with_next) messages_->start();
    }
    messages_->wait_for_all();
}

void Executor::forward_backward(const Flow& flow, bool last, const ContextOf& context) {
    last_ = last;
    run(training_, flow, context, [this](const ProgramStep& step, Ctx& c, Flow in) {
        const Stage& stage = stages_[size_t(step.stage)];
        Flow out;
        switch (step.action.kind) {
            case ActionKind::forward: out = stage.forward(c, in); break;
            case ActionKind::backward: out = stage.backward(c, in); break;
            case ActionKind::backward_input: out = stage.backward_input(c, in); break;
            default: stage.backward_weight(c);
        }
        return out;
    });
}

void Executor::run_forward(const Flow& flow, const ContextOf& context, Forward forward) {
    last_ = false;
    run(validation_, flow, context, [&](const ProgramStep& step, Ctx& c, Flow in) {
        return forward(stages_[size_t(step.stage)], c, in);
    });
    for (Frame& frame : frames_) frame.rewind({0, 0});
}

void Executor::evaluate(const Flow& flow, const ContextOf& context) {
    run_forward(flow, context, [](const Stage& stage, Ctx& c, Flow in) { return stage.evaluate(c, in); });
}

void Executor::predict(const Flow& flow, const ContextOf& context, std::span<const int64_t> tokens,
                       Tensor out) {
    run_forward(flow, context,
                [&](const Stage& stage, Ctx& c, Flow in) { return stage.logits_of(c, in, tokens, out); });
}

}  // namespace coeus
