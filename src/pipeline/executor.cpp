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

Executor::Executor(const Timetable& table, int rank, std::vector<Stage> stages, Exec& exec)
    : exec_(exec),
      stages_(std::move(stages)),
      training_(program_of(table, rank)),
      validation_(forward_program(table.placement, rank)) {
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

template <class Compute>
void Executor::run(const Program& program, const Flow& flow, const ContextOf& context,
                   const Compute& compute) {
    for (const ProgramStep& step : program.steps) {
        const Action& action = step.action;
        wait(step.after);
        if (action.computes()) {
            const ObservedAction noted(action_observer_, action);
            const NamedRange range("{} stage {} micro_batch {}", name_of(action.kind), action.stage,
                                   action.microbatch);
            Frame& frame = frames_[size_t(step.frame)];
            Ctx c = context(action.microbatch, frame);
            const Flow in = step.input_frame >= 0 ? outputs_[size_t(step.input_frame)]
                            : step.slot >= 0      ? slot(step.slot, flow)
                                                  : Flow{};
            const Flow out = compute(step, c, in);
            if (action.kind == ActionKind::forward) outputs_[size_t(step.frame)] = out;
            if (step.ends_frame) {
                wait(step.sent);
                frame.rewind({0, 0});
            }
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
    run(training_, flow, context, [this, last](const ProgramStep& step, Ctx& c, Flow in) {
        const Stage& stage = stages_[size_t(step.stage)];
        stage.expect_last_uses(last && step.last_use);
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

void Executor::evaluate(const Flow& flow, const ContextOf& context) {
    run(validation_, flow, context, [this](const ProgramStep& step, Ctx& c, Flow in) {
        return stages_[size_t(step.stage)].evaluate(c, in);
    });
    for (Frame& frame : frames_) frame.rewind({0, 0});
}

}  // namespace coeus
