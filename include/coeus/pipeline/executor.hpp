// SPDX-License-Identifier: Apache-2.0
// Executor: runs a rank's program with real stages and messages. It owns the frames of the micro-batches and
// the slots of flows; all other memory is the engine's.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/base/turns.hpp"
#include "coeus/comm/point_to_point.hpp"
#include "coeus/pipeline/program.hpp"
#include "coeus/pipeline/stage.hpp"

#include <functional>
#include <span>

namespace coeus {

/// Sizes of an executor's memory in bytes, as measured by the planning run.
struct ExecutorMemory {
    int64_t frame = 0;             ///< for a micro-batch of training
    int64_t validation_frame = 0;  ///< for validation, which uses the first frame of each stage
    size_t frame_entries = 0, frame_owed = 0;
    int64_t frame_on_host = 0;  ///< for a micro-batch of training, in host memory
    int64_t slots = 0;          ///< all slots together
    int flow_tensors = 1;       ///< tensors of a flow between stages; each is a message
};

/// Notified when a computation of a stage starts and ends. The observer of their communicator sees the
/// messages.
class ActionObserver {
public:
    virtual ~ActionObserver() = default;
    virtual void begin_action(const Action& action) = 0;
    virtual void end_action() = 0;
};

class Executor {
public:
    /// Returns what layers may use for a micro-batch, with this frame. `paired`: for the one of a pair that
    /// begins last, so that the two do not share temporaries.
    using ContextOf = std::function<Ctx(int microbatch, Frame& frame, bool paired)>;

    /// `exec` is that of the computation; its observers see the waits. It must outlive the executor.
    Executor(const LoweredTimetable& table, int rank, std::vector<Stage> stages, Exec& exec);
    /// One that only evaluates: its two programs are the same.
    Executor(const Placement& placement, int rank, std::vector<Stage> stages, Exec& exec);

    /// The program for the micro-batches of a local batch.
    const Program& training() const { return training_; }
    /// The program for one micro-batch, forward only.
    const Program& validation() const { return validation_; }
    const std::vector<Frame>& frames() const { return frames_; }
    /// Sets the observer of the frames; null: none.
    void observe(ArenaObserver* observer) {
        for (Frame& frame : frames_) frame.observe(observer);
    }
    /// Sets the observer of the actions; null: none.
    void observe_actions(ActionObserver* observer) { action_observer_ = observer; }

    /// Bytes of all frames together.
    int64_t frame_bytes(const ExecutorMemory& memory) const;
    int64_t frame_bytes_on_host(const ExecutorMemory& memory) const;
    /// Bytes of all slots together, for flows like these.
    int64_t slot_bytes(const Flow& training_flow, const Flow& validation_flow) const;
    /// Allocates the memory where `exec` runs. `pipeline` has the ranks of the stages, and must outlive the
    /// executor.
    void allocate(const ExecutorMemory& memory, const Communicator& pipeline, Sends sends);

    /// From now on the two of a pair take turns (DualPipeV; Qi et al. 2024, DeepSeek-AI 2024): one computes
    /// while the other waits for an exchange between experts. Halves of a local batch also change after each
    /// segment without such an exchange.
    void take_turns_in_pairs();
    /// Called before an exchange is waited for: the other computation of the pair, if there is one,
    /// continues.
    void other_of_pair();

    /// Adds the losses and gradients of all micro-batches of a local batch. `flow` has the shapes and types
    /// of what stages send each other, with as many tensors as were planned. `last`: this is the step's last
    /// local batch, so that each stage's gradients can be reduced after its last B or W.
    void forward_backward(const Flow& flow, bool last, const ContextOf& context);
    /// Adds the loss of one micro-batch.
    void evaluate(const Flow& flow, const ContextOf& context);
    /// One micro-batch of a language model without labels: the last stage writes the logits of some tokens,
    /// see Stage::logits_of(). Other stages do not use `out`.
    void predict(const Flow& flow, const ContextOf& context, std::span<const int64_t> tokens, Tensor out);

private:
    // A computation that runs, perhaps in turn with another one.
    struct Turn {
        const ProgramStep* step;
        bool has_changed = false;  // since its last segment began: the other one had a turn
    };
    /// The program of one micro-batch forward, in all stages of this rank.
    using Forward = FunctionRef<Flow(const Stage& stage, Ctx& c, Flow in)>;
    void run_forward(const Flow& flow, const ContextOf& context, Forward forward);
    template <class Compute>  // compute(step, Ctx&, input) returns the output
    void run(const Program& program, const Flow& flow, const ContextOf& context, const Compute& compute);
    template <class Compute>
    void run_step(const ProgramStep& step, const Flow& flow, const ContextOf& context, const Compute& compute,
                  bool paired);
    void end_frame(const ProgramStep& step);
    void begin(Turn& turn);
    void begin_segment();
    void wait(int message);
    Flow slot(int number, const Flow& flow) const;
    void send(const ProgramStep& step, const Flow& flow);
    void receive(const ProgramStep& step, const Flow& flow);
    int64_t bytes_of_frame(const ExecutorMemory& memory, int number) const;

    Exec& exec_;
    std::vector<Stage> stages_;
    Program training_, validation_;
    std::vector<Frame> frames_;
    std::vector<Flow> outputs_;  // by frame: the output of its F
    Buffer slots_;
    int flow_tensors_ = 1;
    std::unique_ptr<PointToPoint> messages_;
    ActionObserver* action_observer_ = nullptr;
    std::unique_ptr<Turns> turns_;
    Turn* running_ = nullptr;  // the computation that has its turn
    bool last_ = false;        // the local batch is the step's last
};

}  // namespace coeus
