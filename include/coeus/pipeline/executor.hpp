// SPDX-License-Identifier: Apache-2.0
// Executor: runs a rank's program with real stages and messages. It owns the frames and the slots of flows;
// all other memory is the engine's.
#pragma once

#include "coeus/comm/point_to_point.hpp"
#include "coeus/pipeline/program.hpp"
#include "coeus/pipeline/stage.hpp"

#include <functional>

namespace coeus {

/// Bytes of an executor's memory, as the planning run measured them.
struct ExecutorMemory {
    int64_t frame = 0;             ///< of a micro-batch of training
    int64_t validation_frame = 0;  ///< of validation, which uses the first frame of each stage
    size_t frame_entries = 0, frame_owed = 0;
    int64_t frame_on_host = 0;  ///< of a micro-batch of training, in host memory
    int64_t slots = 0;          ///< all together
    int flow_tensors = 1;       ///< of what goes from stage to stage: a message each
};

/// Sees every computation of a stage start and end; messages are seen by the observer of their communicator.
class ActionObserver {
public:
    virtual ~ActionObserver() = default;
    virtual void begin_action(const Action& action) = 0;
    virtual void end_action() = 0;
};

class Executor {
public:
    /// What layers may touch for a micro-batch, in this frame.
    using ContextOf = std::function<Ctx(int microbatch, Frame& frame)>;

    /// `exec`: of the computation, whose observer sees the waits. It must outlive the executor.
    Executor(const Timetable& table, int rank, std::vector<Stage> stages, Exec& exec);

    /// Of the micro-batches of a local batch.
    const Program& training() const { return training_; }
    /// Of one, forward.
    const Program& validation() const { return validation_; }
    const std::vector<Frame>& frames() const { return frames_; }
    /// Who sees the frames from now on; null: nobody.
    void observe(ArenaObserver* observer) {
        for (Frame& frame : frames_) frame.observe(observer);
    }
    /// Who sees the actions from now on; null: nobody.
    void observe_actions(ActionObserver* observer) { action_observer_ = observer; }

    /// Of all frames together.
    int64_t frame_bytes(const ExecutorMemory& memory) const;
    int64_t frame_bytes_on_host(const ExecutorMemory& memory) const;
    /// Bytes that all slots need together for such flows.
    int64_t slot_bytes(const Flow& training_flow, const Flow& validation_flow) const;
    /// Where `exec` runs. `pipeline`: the ranks that have the stages, which must outlive it.
    void allocate(const ExecutorMemory& memory, const Communicator& pipeline, Sends sends);

    /// Adds the losses and gradients of all micro-batches of a local batch. `flow`: shapes and types of what
    /// goes from stage to stage, of as many tensors as were planned. `last`: of the step, so that each
    /// stage's gradients can be reduced after its last B or W.
    void forward_backward(const Flow& flow, bool last, const ContextOf& context);
    /// Adds the loss of one micro-batch.
    void evaluate(const Flow& flow, const ContextOf& context);

private:
    template <class Compute>
    void run(const Program& program, const Flow& flow, const ContextOf& context, const Compute& compute);
    void wait(int message);
    Flow slot(int number, const Flow& flow) const;
    void send(const ProgramStep& step, const Flow& flow);
    void receive(const ProgramStep& step, const Flow& flow);
    int64_t bytes_of_frame(const ExecutorMemory& memory, int number) const;

    Exec& exec_;
    std::vector<Stage> stages_;
    Program training_, validation_;
    std::vector<Frame> frames_;
    std::vector<Flow> outputs_;  // of the F that a frame belongs to
    Buffer slots_;
    int flow_tensors_ = 1;
    std::unique_ptr<PointToPoint> messages_;
    ActionObserver* action_observer_ = nullptr;
};

}  // namespace coeus
