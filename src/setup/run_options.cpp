// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/run_options.hpp"

#include "coeus/base/text.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "coeus/kernels/own_attention.hpp"
#include "coeus/setup/device_choice.hpp"
#include "coeus/setup/precision_checks.hpp"
#include "pipeline_options.hpp"
#include "precision_from_deck.hpp"

#include <algorithm>

namespace coeus {

namespace {

// torchtitan's "alltoall" is a ring: in PyTorch each of its steps is an all-to-all call.
ContextParallel context_from_deck(const Config::Parallelism& p) {
    return {
        .exchange = p.context_parallel_rotate_method == "allgather"  ? ContextExchange::all_gather
                    : p.context_parallel_rotate_method == "alltoall" ? ContextExchange::ring
                                                                     : ContextExchange::heads,
        .balancing = p.context_parallel_load_balancer == "headtail" ? Balancing::head_tail : Balancing::none};
}

Decay decay_of(const std::string& decay_type) {
    if (decay_type == "linear") return Decay::linear;
    if (decay_type == "sqrt") return Decay::sqrt;
    if (decay_type == "cosine") return Decay::cosine;
    throw LogicError(
        fmt::format("schedule_from_deck has no decay for lr_scheduler.decay_type = \"{}\"", decay_type));
}

RecomputeOptions recompute_options(const Config::ActivationCheckpoint& config) {
    using Mode = RecomputeOptions::Mode;
    const std::string& option = config.selective_ac_option;
    if (config.mode == "none") return {};
    if (config.mode == "full") return {.mode = Mode::blocks};
    if (config.mode == "memory_budget") return {.mode = Mode::budget, .budget = config.memory_budget};
    if (option == "op") return {.mode = Mode::operations};
    return {.mode = Mode::blocks, .every = std::max<int64_t>(1, std::stoll(option))};
}

void require_mesh_fits(const ModelConfig& model, const MeshShape& mesh, ContextExchange exchange) {
    const std::string refusal = model->refusal({.tensor = mesh.tp,
                                                .context = mesh.cp,
                                                .expert = mesh.ep,
                                                .context_by_heads = exchange == ContextExchange::heads});
    if (!refusal.empty()) throw ConfigError("{}", refusal);
}

}  // namespace

EngineOptions engine_options(const Config& config, const ModelConfig& model, const MeshShape& mesh, int rank,
                             const RankMachine& machine) {
    const ContextParallel context = context_from_deck(config.parallelism);
    require_mesh_fits(model, mesh, context.exchange);
    EngineOptions options;
    options.types = {.master = storage_dtype(config),
                     .compute = compute_dtype(config),
                     .precision = precision_from_deck(config),
                     .gradients_in_bf16 = gradients_in_bf16(config),
                     .frozen = Frozen(config.model.frozen)};
    options.training = {.sequences = config.training.local_batch_size,
                        .seq_len = config.training.seq_len,
                        .masks_documents = config.training.document_mask};
    options.accumulation = gradient_accumulation_steps(config, mesh.size(axis::dp));
    options.mesh = mesh;
    options.rank = rank;
    options.exchanges = {.context = context,
                         .split_loss = !config.parallelism.disable_loss_parallel,
                         .overlap_tokens = config.parallelism.enable_async_tensor_parallel,
                         .expert_capacity = config.model.non_blocking_capacity_factor};
    options.pipeline = pipeline_from_deck(config, model, mesh);
    if (config.validation.enable)
        options.validation = {.sequences = config.validation.local_batch_size,
                              .seq_len = config.validation.seq_len,
                              .masks_documents = config.training.document_mask};
    options.scores_tokens =
        config.validation.enable && (config.validation.per_dataset || !config.validation.tasks.empty());
    options.predicts = config.validation.enable && !config.validation.prompts.empty();
    options.optimizer = config.optimizer;
    options.param_groups = param_groups(config);
    options.seed = uint64_t(config.debug.seed);
    options.max_norm = config.training.max_norm;
    options.machine = machine;
    // every micro-batch uses a pipeline's stages: by default, their weights stay gathered, and gradients are
    // summed once
    const std::string& reshard = config.parallelism.fsdp_reshard_after_forward;
    const bool keeps = reshard == "never" || (reshard == "default" && mesh.pp > 1);
    options.gather.weights = keeps ? Keep::all : Keep::neighbours;
    const std::string& sum = config.parallelism.fsdp_sum_gradients;
    const bool once = sum == "step" || (sum == "default" && mesh.pp > 1);
    options.gather.gradients = once ? Keep::all : Keep::neighbours;
    options.gather.prefetch = int(config.parallelism.fsdp_prefetch);
    options.streams = machine.nccl ? Stream::Mode::eager : Stream::Mode::threaded;
    options.experts_in_8_bits = config.kernels.experts_in_8_bits;
    options.deterministic = config.kernels.deterministic;
    if (const auto mib = config.kernels.logits_chunk_mib) options.chunk_bytes = *mib << 20;
    options.graphs = machine.backend == Backend::cuda && !config.training.disable_cuda_graphs &&
                     (mesh.ranks() == 1 || machine.nccl);
    options.types.offload = config.training.enable_cpu_offload && machine.backend == Backend::cuda;
    options.overlap_pairs = config.parallelism.expert_parallel_overlap ||
                            config.parallelism.pipeline_parallel_expert_parallel_overlap;
    options.copies_state = saves_async(config);
    options.limits = watches_loss(config.guards);
    options.snapshot = rewinds(config.guards);
    options.recompute = recompute_options(config.activation_checkpoint);
    if (options.types.precision.any()) require_precision_fits(config, model, options);
    return options;
}

EngineOptions evaluation_options(const Config& config, const ModelConfig& model, const MeshShape& mesh,
                                 int rank, const RankMachine& machine) {
    EngineOptions options = engine_options(config, model, mesh, rank, machine);
    options.trains = false;
    options.scores_tokens = true;
    options.predicts = false;
    return options;
}

int64_t cudnn_bytes(const Config& config) {
    const std::string& attention = config.kernels.attention;
    if (attention == "own" || attention == "mma") return 0;
    return attention == "cudnn_forward" ? cudnn_forward_bytes : most_cudnn_bytes;
}

EngineOptions planned_options(const Config& config, const ModelConfig& model, const MeshShape& mesh,
                              int architecture, int threads, int rank) {
    const Backend backend = backend_from_deck(config);
    const bool gpu = backend == Backend::cuda, nccl = gpu && config.comm.transport != "staged";
    return engine_options(config, model, mesh, rank,
                          {.backend = backend,
                           .architecture = architecture,
                           .threads = threads,
                           .cudnn_bytes = gpu ? cudnn_bytes(config) : 0,
                           .nccl = nccl,
                           .nvls = nccl && !config.comm.deterministic});
}

LrSchedule schedule_from_deck(const Config& config, std::vector<std::string>* notices, int64_t begins) {
    const Config::LrScheduler& s = config.lr_scheduler;
    return LrSchedule(
        {.warmup_steps = s.warmup_steps,
         .total_steps = s.total_steps.value_or(std::max<int64_t>(1, config.training.steps - begins)),
         .decay_ratio = s.decay_ratio,
         .decay = decay_of(s.decay_type),
         .min_factor = s.min_lr_factor},
        notices);
}

}  // namespace coeus
