// SPDX-License-Identifier: Apache-2.0
// Engine: a model with its memory, optimizer and kernels; runs micro-batches and optimizer steps. It does not
// know about files.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/engine/offloading.hpp"
#include "coeus/engine/repetitions.hpp"
#include "coeus/engine/staged_batches.hpp"
#include "coeus/engine/step_graphs.hpp"
#include "coeus/engine/temporaries.hpp"
#include "coeus/engine/token_scores.hpp"
#include "coeus/layers/exchanges/exchanges.hpp"
#include "coeus/layers/kept_operands.hpp"
#include "coeus/models/model_config.hpp"
#include "coeus/optim/param_groups.hpp"
#include "coeus/pipeline/executor.hpp"
#include "coeus/pipeline/gathered_logits.hpp"
#include "coeus/plan/memory.hpp"
#include "coeus/plan/recompute.hpp"
#include "coeus/state/fsdp.hpp"
#include "coeus/state/one_scale_weights.hpp"
#include "coeus/state/step_state.hpp"

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace coeus {

/// How the model is divided into stages, and in which order these run.
struct PipelineOptions {
    Timetable timetable = one_stage();
    std::vector<ModelPart> parts;  ///< of all stages; empty: one stage is the whole model
    Sends sends = Sends::standard;
};

/// A step with a larger loss or gradient norm is refused.
struct StepLimits {
    double loss = std::numeric_limits<double>::infinity();
    double norm = std::numeric_limits<double>::infinity();
};

/// What became of a step.
struct StepOutcome {
    bool taken = false;  ///< false: it was refused, and nothing was updated
    /// Blocks of rows from other ranks had no room for all rows, so it was computed again, in rounds.
    bool computed_twice = false;
    bool gave_up_blocks = false;  ///< all later steps run in rounds from the start, kernel by kernel
};

/// What a rank computes and exchanges tensors with, as far as its engine depends on it.
struct RankMachine {
    Backend backend = Backend::cpu;
    int architecture = 0;  ///< of the GPU, for the plan: see Processor
    int threads = 1;
    int64_t cudnn_bytes = 0;  ///< see Processor; 0: the ranks do not use cuDNN
    bool nccl = false;        ///< NCCL carries the tensors of GPUs, and its memory is planned
    bool nvls = false;        ///< NCCL may sum in NVLink's switches, whose memory is planned
};

/// What a run asks of the engine, and the machine that it has.
struct EngineOptions {
    /// False: the engine only evaluates. It has weights, and neither gradients, moments nor batches of
    /// training; all options of these are ignored.
    bool trains = true;
    StateTypes types;
    BatchShape training;  ///< a local batch of whole sequences, which the pipeline divides into micro-batches
    int64_t accumulation = 1;    ///< local batches per step
    BatchShape validation;       ///< sequences 0: no validation
    bool scores_tokens = false;  ///< evaluate() may be asked for the scores of each token
    bool predicts = false;       ///< predict() may be called: the model is one of text
    OptimizerOptions optimizer;
    std::vector<ParamGroupOptions> param_groups;  ///< updated differently from `optimizer`
    uint64_t seed = 0;                            ///< of the optimizer's random numbers
    double max_norm = 1;                          ///< of the gradient, for clipping; 0: no clipping
    MeshShape mesh;
    int rank = 0;  ///< of this process in the mesh
    RankMachine machine;
    GatherOptions gather;                        ///< used if the mesh shards parameters
    ExchangeOptions exchanges;                   ///< used if the mesh divides sequences or layers
    Stream::Mode streams = Stream::Mode::eager;  ///< how communication overlaps with the computation
    RecomputeOptions recompute;
    bool copies_state = false;  ///< checkpoints are written from copies, whose memory is planned
    /// If several ranks divide the experts and the schedule has pairs: the two of a pair take turns when they
    /// wait for an exchange between experts. The engine sets it to false if inputs of blocks are offloaded,
    /// or if pairs are of two stages whose units do not have places of their own (`gather`).
    bool overlap_pairs = false;
    bool limits = false;    ///< steps have limits, so that ranks must agree on which steps they refuse
    bool snapshot = false;  ///< a StateSnapshot is used, whose memory is planned
    PipelineOptions pipeline;
    std::optional<bool> experts_in_8_bits;  ///< see Processor
    bool deterministic = true;              ///< see Processor
    /// See Processor. Not set: the engine takes cpu_chunk_bytes, or the smallest of gpu_chunk_bytes.
    std::optional<int64_t> chunk_bytes;
    /// Weights of linear layers in 8 bits are made after each update and kept, unless they are gathered.
    bool keeps_operands = false;
    bool graphs = false;  ///< submit a GPU's steps as CUDA graphs, unless something observes them
    /// If several ranks divide the experts: they exchange rows in blocks (BlocksExchange), not in rounds. Not
    /// set: with graphs, which need blocks. The engine sets exchanges.expert_blocks by it.
    std::optional<bool> expert_blocks;
    int64_t offload_chunk = Offloaded::usual_chunk;  ///< used if types.offload

    /// The sequences of a step, on all ranks together.
    int64_t step_sequences() const { return training.sequences * mesh.size(axis::dp) * accumulation; }
};

/// The memory plans of the pipeline ranks, whose stages differ. Each is the plan of the first rank of a
/// pipeline stage; all ranks with the same stages have the same plan.
std::vector<MemoryPlan> plans_of_stages(const ModelConfig& config, const EngineOptions& options);

class Engine {
public:
    /// Plans the memory, and allocates none.
    Engine(const ModelConfig& config, const EngineOptions& options);

    const MemoryPlan& plan() const { return plan_; }
    /// The sizes of the arenas as planned; used() returns their peaks so far.
    const LayerMemory& layer_memory() const { return layers_; }
    LayerMemory used() const;
    /// Plans the activations of this rank with and without its choices.
    RecomputePlan recompute() const;
    const Mesh& mesh() const { return *mesh_; }
    const ParamGroups& optimizer() const { return optimizer_; }
    /// Allocates all memory that the engine will ever use, on a device of options().machine. Mesh and device
    /// must outlive the engine.
    void allocate(const Mesh& mesh = mesh_of_one(), const Device& device = host_device()) {
        allocate(mesh, device, kernels_of(options_.machine.backend));
    }
    /// The same with other kernels than those of the backend.
    void allocate(const Mesh& mesh, const Device& device, const Kernels& kernels);

    const ModelConfig& config() const { return config_; }
    Model& model() { return *model_; }
    const Model& model() const { return *model_; }
    const EngineOptions& options() const { return options_; }
    Exec& exec() { return exec_; }
    const Kernels& kernels() const { return *kernels_; }
    /// True if steps are submitted as CUDA graphs. Nothing inside a graph can be observed, so they are not
    /// used while something observes.
    bool gives_graphs() const { return options_.graphs && !exec_.is_synchronous() && exec_.observers.none(); }
    /// The counters of the last step (Model::counters()), summed over all ranks: [rows, columns]. Empty if
    /// there are none.
    std::vector<int64_t> counts() const;
    /// Rounds of experts' rows after the first ones, summed over the layers and micro-batches of the last
    /// step on this rank.
    int64_t extra_rounds() const { return exchanges_->extra_rounds(); }
    /// The scalars of the last update().
    const StepScalars& scalars() const { return step_->last_read(); }

    /// Computes the gradients and the loss of a step, summed over the ranks. `step` counts from 1. `counted`
    /// is the number of what the loss is a mean of (labels that count), on all ranks together. local_batch(i)
    /// returns each of the options().accumulation local batches, which must stay valid until update() is
    /// called. `goes_on` is called before each local batch except the first, on all ranks alike, but never
    /// with options().graphs. If it returns false, the step is given up and false is returned.
    bool compute_gradients(
        int64_t step, double learning_rate, int64_t counted, FunctionRef<LocalBatch(int64_t)> local_batch,
        const StepLimits& limits = {}, FunctionRef<bool()> goes_on = [] { return true; });
    /// Clips by the global norm and updates the weights. Refuses the step if the loss or the norm is not
    /// finite or exceeds its limit on any rank. If blocks of experts' rows had no room for all rows of the
    /// step (ExchangeOptions::expert_blocks), first computes the gradients again, with rounds and kernel by
    /// kernel. After three such steps within ten, it gives up blocks.
    StepOutcome update();
    /// How many steps were computed twice.
    int64_t steps_computed_twice() const { return repetitions_.total(); }
    /// False: there are none, or they were given up, see update().
    bool uses_expert_blocks() const { return options_.exchanges.expert_blocks; }
    /// Must be called after the owned weights were changed other than by update().
    void renew_weights();
    /// The number of nodes of the graphs that were recorded, which does not depend on accumulation beyond 3.
    int64_t graph_nodes() const { return graphs_.nodes(); }
    /// Destroys the graphs; called before the communicators that they refer to are destroyed.
    void forget_graphs() { graphs_.forget(); }
    /// This rank's sum of the token losses of a validation batch (not divided by anything); 0 if it does not
    /// have the last stage. All ranks of the mesh must call it equally often.
    double evaluate(const LocalBatch& local);
    /// The same, and the scores of the tokens of the whole batch, on all ranks that compute it. With
    /// options().scores_tokens only.
    double evaluate(const LocalBatch& local, TokenScores& scores);
    /// The logits of the token that follows a place of each sequence of a validation batch, whose labels do
    /// not matter. Returns [1, V] for each sequence, on the host: f64 if the model computes in f64, else f32.
    /// They are valid until the next call. Empty on ranks that do not have the last stage or this place of
    /// the sequence. With options().predicts only. All ranks of the mesh must call it equally often.
    std::vector<Tensor> predict(const LocalBatch& local, std::span<const int64_t> places);
    const Executor& executor() const { return executor_; }
    const Arena& temporaries() const { return temporaries_.usual(); }

    /// Adds an observer of kernels and exchanges.
    [[nodiscard]] Observation observe(KernelObserver& kernels) { return exec_.observers.add(kernels); }
    /// The Execs of the streams, for observers: the computation's Exec does not see what they cast and add.
    Gathered::Execs execs_of_gathered() const { return gathered_.execs(); }
    /// Sets the observer of the arenas; null: none.
    void observe_arenas(ArenaObserver* arenas);
    /// Sets the observers of the pipeline's actions, and of exchanges that only its ranks make; null: none.
    void observe_pipeline(ActionObserver* actions, CommunicationObserver* communication);
    /// The arenas whose contents change within a step: frames, temporaries, workspace.
    std::vector<std::pair<std::string, const Arena*>> arenas() const;
    /// The storage to whose weights or gradients the tensor, or the memory that it is in, belongs at present;
    /// null: none.
    const Storage* storage_of(const Tensor& tensor) const;

private:
    friend std::vector<MemoryPlan> plans_of_stages(const ModelConfig& config, const EngineOptions& options);
    struct Run;  // what the engines of all ranks share
    Engine(const Run& run, int rank);

    void measure_update();
    void connect(const Mesh& mesh);
    std::vector<MatrixRanks> matrix_ranks(const Mesh& mesh) const;
    bool submit_gradients(FunctionRef<bool()> goes_on);
    bool submit_graphs();
    void begin_gradients();
    void submit_update();
    void renew_kept_operands(KeptOperands::Changed changed);
    void repeat_with_rounds();
    void forward_backward(bool last);
    void sum_over_ranks();
    void add_losses_of_own_tokens();
    double evaluate(const LocalBatch& local, const ScoredTokens& scored);
    const Batch& bring_validation(const LocalBatch& local);
    Ctx validation_context(const Batch& batch, Frame& frame);
    bool has_last_stage() const;
    SequencePart part_of_sequences(int64_t seq_len) const;
    void agree_on_refusal();

    ModelConfig config_;
    EngineOptions options_;
    const Mesh* mesh_ = nullptr;
    std::unique_ptr<Model> model_;
    OneScaleWeights one_scale_weights_;
    std::optional<KeptOperands> kept_operands_;  // absent: none are kept
    Gathered gathered_;
    std::vector<MatrixRanks> matrix_ranks_;  // by sharding
    Executor executor_;
    // the two ranks with Model::shared_storage(), if there are two
    std::optional<Communicator> sharing_ranks_;
    ParamGroups optimizer_;
    LayerMemory layers_;
    MemoryPlan plan_;
    const Kernels* kernels_ = nullptr;
    Exec exec_;
    Temporaries temporaries_;
    std::optional<Exchanges> exchanges_;  // its streams must end before the arenas
    Offloading offloading_;
    StagedBatches batches_;
    std::optional<StepState> step_, validation_;
    OwnedTensor counts_;                    // Ctx::counts of a step
    OwnedTensor scores_;                    // Ctx::scored of a validation batch, one row after the other
    std::optional<GatheredLogits> logits_;  // of predict()
    StepGraphs graphs_;
    Repetitions repetitions_;
};

}  // namespace coeus
