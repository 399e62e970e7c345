// SPDX-License-Identifier: Apache-2.0
// Engine: a model with its memory, optimizer and kernels; runs micro-batches and optimizer steps. It knows no
// files.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/device/step_graph.hpp"
#include "coeus/engine/batch_part.hpp"
#include "coeus/layers/block_inputs.hpp"
#include "coeus/layers/exchanges.hpp"
#include "coeus/optim/param_groups.hpp"
#include "coeus/pipeline/executor.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/plan/recompute.hpp"
#include "coeus/state/fsdp.hpp"
#include "coeus/state/step_state.hpp"

#include <limits>
#include <optional>

namespace coeus {

/// How the decoder is cut into stages, and in which order these run.
struct PipelineOptions {
    Timetable timetable = one_stage();
    std::vector<DecoderPart> parts;  ///< of all stages; none: one stage is the whole
    Sends sends = Sends::standard;
};

/// A step whose loss or gradient norm is larger is refused.
struct StepLimits {
    double loss = std::numeric_limits<double>::infinity();
    double norm = std::numeric_limits<double>::infinity();
};

struct EngineOptions {
    StateTypes types;
    BatchShape training;  ///< a local batch of whole sequences, which the pipeline cuts into micro-batches
    int64_t accumulation = 1;  ///< local batches of a step
    BatchShape validation;     ///< sequences 0: no validation
    OptimizerOptions optimizer;
    std::vector<ParamGroupOptions> param_groups;  ///< updated otherwise than `optimizer` says
    uint64_t seed = 0;                            ///< of the optimizer's random numbers
    double max_norm = 1;                          ///< of the gradient; 0: no clipping
    int threads = 1;
    MeshShape mesh;  ///< and this rank's place in it
    int rank = 0;
    GatherOptions gather;                        ///< where the mesh shards parameters
    ExchangeOptions exchanges;                   ///< where it divides sequences or layers
    Stream::Mode streams = Stream::Mode::eager;  ///< what runs communication beside the computation
    RecomputeOptions recompute;
    bool copies_state = false;  ///< checkpoints are written from copies, whose memory is planned
    bool limits = false;        ///< steps have limits, so that ranks agree on which they refuse
    bool snapshot = false;      ///< a StateSnapshot is taken, whose memory is planned
    PipelineOptions pipeline;
    Backend backend = Backend::cpu;
    bool graphs = false;  ///< give a GPU its steps as graphs, unless someone observes
    bool nccl = false;    ///< carries the tensors of GPUs, and has memory of theirs
    int64_t offload_chunk = Offloaded::usual_chunk;  ///< where types.offload
};

/// Memory plans of the pipeline ranks, whose stages differ (of each the first rank: those of one stage plan
/// alike).
std::vector<MemoryPlan> plans_of_stages(const DecoderConfig& config, const EngineOptions& options);

class Engine {
public:
    /// Plans; takes no memory but the RoPE table's.
    Engine(const DecoderConfig& config, const EngineOptions& options);

    const MemoryPlan& plan() const { return plan_; }
    /// What the arenas have, as planned, and what they held at most so far.
    const LayerMemory& layer_memory() const { return layers_; }
    LayerMemory used() const;
    const RecomputePlan& recompute() const { return recompute_; }
    const Mesh& mesh() const { return *mesh_; }
    const ParamGroups& optimizer() const { return optimizer_; }
    /// Takes all memory the engine will ever use, on a device of options().backend. Mesh and device must
    /// outlive it.
    void allocate(const Mesh& mesh = mesh_of_one(), const Device& device = host_device());

    Decoder& decoder() { return decoder_; }
    const Decoder& decoder() const { return decoder_; }
    const EngineOptions& options() const { return options_; }
    Exec& exec() { return exec_; }
    const Kernels& kernels() const { return *kernels_; }
    /// The work of a step is given as graphs, into which nobody sees: while someone observes it is not.
    bool gives_graphs() const { return options_.graphs && !exec_.is_synchronous() && exec_.observers.none(); }
    /// As the last update() left them.
    const StepScalars& scalars() const { return step_->last_read(); }

    /// The gradients and the loss of a step, summed over the ranks. `step` counts from 1;
    /// `valid_tokens`: labels that count, of all ranks; local_batch(i) gives each of options().accumulation
    /// local batches, which stay until update() is called. Before each but the first `goes_on` is asked, on
    /// all ranks alike, unless the step is a graph: where it says no, the step is given up, and false
    /// returned.
    bool compute_gradients(
        int64_t step, double learning_rate, int64_t valid_tokens,
        FunctionRef<SampleRows(int64_t)> local_batch, const StepLimits& limits = {},
        FunctionRef<bool()> goes_on = [] { return true; });
    /// Clips by the global norm and updates the weights. Returns false, with nothing updated, where loss or
    /// norm is not finite, or beyond its limit, on any rank.
    bool update();
    /// After the owned weights were changed by others than update().
    void renew_weights();
    /// Ends the graphs, before the communicators that they refer to.
    void forget_graphs();
    /// This rank's sum of the token losses of a validation batch (not divided by anything); 0 where it has
    /// not the last stage. Every rank of the mesh calls it as often.
    double evaluate(const SampleRows& local);
    /// The ranks' memory in use: of arenas, the most that ever was.
    const Executor& executor() const { return executor_; }
    const Arena& temporaries() const { return temp_; }

    /// Who sees kernels and exchanges, besides those that see them already.
    [[nodiscard]] Observation observe(KernelObserver& kernels) { return exec_.observers.add(kernels); }
    /// Who sees the arenas from now on; null: nobody.
    void observe_arenas(ArenaObserver* arenas);
    /// Who sees the actions of the pipeline, and what only its ranks exchange, from now on; null: nobody.
    void observe_pipeline(ActionObserver* actions, CommunicationObserver* communication);
    /// The frame, temporaries, workspace: what changes hands within a step.
    std::vector<std::pair<std::string, const Arena*>> arenas() const;
    /// Whose weights, or gradients, these are at present, or a part of them; null: nobody's.
    const Storage* storage_of(const Tensor& tensor) const;

private:
    void measure_update();
    void give(StepGraph& work, FunctionRef<void()> call);
    void forward_backward(int64_t local_batch);
    void sum_over_ranks();
    void agree_on_refusal();
    Ctx context(const Batch& batch, Frame& frame, StepScalars& scalars, const BlockInputs& inputs);
    Flow flow_of(int64_t tokens) const;

    EngineOptions options_;
    const Mesh* mesh_ = nullptr;
    RecomputePlan recompute_;
    Decoder decoder_;
    Gathered gathered_;
    Executor executor_;
    std::optional<Communicator> table_ranks_;  // the two with the table of a tied decoder
    ParamGroups optimizer_;
    LayerMemory layers_;
    MemoryPlan plan_;
    const Kernels* kernels_ = nullptr;
    Exec exec_;
    Arena temp_;
    std::optional<Stream> layer_stream_;  // for what layers exchange; it ends before temp_ does
    std::optional<Exchanges> exchanges_;
    std::optional<Offloaded> offloaded_;
    std::optional<OffloadedInputs> offloaded_inputs_;
    BatchPart training_part_, validation_part_;
    std::vector<Batch> micro_batches_;  // of a local batch
    std::optional<StepState> step_, validation_;
    StepGraph gradients_, update_;
};

}  // namespace coeus
