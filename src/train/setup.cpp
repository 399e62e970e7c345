// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/setup.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/engine/memory_advice.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/train/device_setup.hpp"
#include "pipeline_setup.hpp"

#include <algorithm>
#include <filesystem>

namespace coeus {

namespace {

// torchtitan says alltoall for what PyTorch does with it: a ring, whose steps are calls of all-to-all.
ContextParallel context_from_deck(const Config::Parallelism& p) {
    return {.exchange = p.context_parallel_rotate_method == "allgather"  ? ContextExchange::all_gather
                        : p.context_parallel_rotate_method == "alltoall" ? ContextExchange::ring
                                                                         : ContextExchange::heads,
            .balancing = p.context_parallel_load_balancer == "none" ? Balancing::none : Balancing::head_tail};
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

void require_mesh_fits(const DecoderConfig& model, const Config& config, const MeshShape& mesh) {
    const auto divides = [&](const char* option, int degree, const char* what, int64_t number) {
        if (number % degree == 0) return;
        std::vector<std::string> valid;
        for (int64_t d = 1; d <= std::min<int64_t>(number, 1024); ++d)
            if (number % d == 0) valid.push_back(std::to_string(d));
        throw ConfigError("parallelism.{} = {}: must divide {} = {}; valid are {}", option, degree, what,
                          number, join(valid, ", "));
    };
    divides("tensor_parallel_degree", mesh.tp, "model.n_heads", model.heads);
    divides("tensor_parallel_degree", mesh.tp, "model.n_kv_heads", model.kv_heads);
    if (config.parallelism.context_parallel_rotate_method == "heads")
        divides("context_parallel_degree", mesh.cp,
                "the heads (context_parallel_rotate_method = \"heads\"), model.n_kv_heads / "
                "tensor_parallel_degree",
                model.kv_heads / mesh.tp);
    if (config.parallelism.expert_parallel_degree > 1)
        throw ConfigError("parallelism.expert_parallel_degree = {}: {} {} has no experts; set it to 1",
                          config.parallelism.expert_parallel_degree, model.family, model.flavor);
}

}  // namespace

EngineOptions engine_options(const Config& config, const DecoderConfig& model, const MeshShape& mesh,
                             int rank, int threads, const RankTransport& transport) {
    require_mesh_fits(model, config, mesh);
    EngineOptions options;
    options.types = {.master = storage_dtype(config), .compute = compute_dtype(config)};
    options.training = {.sequences = config.training.local_batch_size, .seq_len = config.training.seq_len};
    options.accumulation = gradient_accumulation_steps(config, mesh.size(dp));
    options.mesh = mesh;
    options.rank = rank;
    options.exchanges = {.context = context_from_deck(config.parallelism),
                         .split_loss = !config.parallelism.disable_loss_parallel,
                         .overlap_tokens = config.parallelism.enable_async_tensor_parallel};
    options.pipeline = pipeline_from_deck(config, model, mesh);
    if (config.validation.enable)
        options.validation = {.sequences = config.validation.local_batch_size,
                              .seq_len = config.validation.seq_len};
    const Config::Optimizer& o = config.optimizer;
    options.adam = {.beta1 = o.beta1,
                    .beta2 = o.beta2,
                    .eps = o.eps,
                    .weight_decay = o.weight_decay,
                    .decoupled = o.name == "AdamW",
                    .seed = uint64_t(config.debug.seed)};
    options.max_norm = config.training.max_norm;
    options.threads = threads;
    // a pipeline's stages are used by one micro-batch after the other: their weights stay, and gradients are
    // summed once
    const std::string& reshard = config.parallelism.fsdp_reshard_after_forward;
    const bool keeps = reshard == "never" || (reshard == "default" && mesh.pp > 1);
    options.gather.weights = keeps ? Keep::all : Keep::neighbours;
    options.gather.gradients = mesh.pp > 1 ? Keep::all : Keep::neighbours;
    options.streams = transport.nccl ? Stream::Mode::eager : Stream::Mode::threaded;
    options.backend = backend_from_deck(config);
    options.graphs = options.backend == Backend::cuda && !config.training.disable_cuda_graphs &&
                     (mesh.ranks() == 1 || transport.nccl);
    options.nccl = transport.nccl.has_value();
    options.types.offload = config.training.enable_cpu_offload && options.backend == Backend::cuda;
    options.copies_state = saves_async(config);
    options.limits = watches_loss(config.guards);
    options.snapshot = rewinds(config.guards);
    options.recompute = recompute_options(config.activation_checkpoint);
    return options;
}

EngineOptions engine_options(const Config& config, const DecoderConfig& model, const MeshShape& mesh,
                             int rank, int threads) {
    EngineOptions options = engine_options(config, model, mesh, rank, threads, RankTransport{});
    options.nccl = options.backend == Backend::cuda && config.comm.transport != "staged";
    return options;
}

LrSchedule schedule_from_deck(const Config& config, std::vector<std::string>* notices, int64_t begins) {
    const Config::LrScheduler& s = config.lr_scheduler;
    return LrSchedule(
        {.warmup_steps = s.warmup_steps,
         .total_steps = s.total_steps.value_or(std::max<int64_t>(1, config.training.steps - begins)),
         .decay_ratio = s.decay_ratio,
         .decay = s.decay_type == "sqrt"     ? Decay::sqrt
                  : s.decay_type == "cosine" ? Decay::cosine
                                             : Decay::linear,
         .min_factor = s.min_lr_factor},
        notices);
}

namespace {

std::string describe_offloading(const Engine& engine) {
    const StateTypes& types = engine.options().types;
    if (!types.offload)
        return "Notice: training.enable_cpu_offload has no effect on CPUs: all of the run is in host memory "
               "already";
    const bool inputs = engine.layer_memory().activations_on_host > 0;
    return fmt::format("Offloaded to host memory: {}optimizer moments{}",
                       types.offloads_master() ? "weights, " : "",
                       inputs ? ", inputs of blocks that are computed again"
                              : "; no activations, since no block is computed again whole "
                                "(activation_checkpoint.mode = \"full\")");
}

}  // namespace

std::vector<std::string> describe_run(const Config& config, const MeshShape& mesh, const Engine& engine,
                                      std::optional<int64_t> memory_limit) {
    const DecoderConfig& m = engine.decoder().config();
    const EngineOptions& options = engine.options();
    const int64_t sequences = options.training.sequences * mesh.size(dp) * options.accumulation;
    std::vector<std::string> lines = {
        mesh.ranks() == 1 ? std::string("Mesh: 1 rank")
                          : fmt::format("Mesh: {} ranks: {}", mesh.ranks(), mesh.text()),
        fmt::format("Model: {} {}, {} parameters (dim {}, {} layers, {} heads, {} kv heads, ffn {}, "
                    "vocabulary {}{}), {:.4g} FLOPs per token",
                    m.family, m.flavor, with_commas(engine.decoder().parameters().count()), m.dim, m.layers,
                    m.heads, m.kv_heads, m.ffn_hidden, m.vocab, m.tied ? ", tied" : "",
                    m.flops_per_token(options.training.seq_len)),
        fmt::format("Types: weights {}, compute {}, gradients {}", name_of(options.types.master),
                    name_of(options.types.compute), name_of(options.types.accumulate())),
        fmt::format("Batch: {} sequences of {} tokens a step ({} local x {} data {} x {} accumulation), {} "
                    "steps (warm-up {})",
                    sequences, options.training.seq_len, options.training.sequences, mesh.size(dp),
                    mesh.size(dp) == 1 ? "rank" : "ranks", options.accumulation, config.training.steps,
                    std::min(config.lr_scheduler.warmup_steps,
                             config.lr_scheduler.total_steps.value_or(config.training.steps))),
    };
    if (mesh.cp > 1)
        lines.push_back(
            fmt::format("Sequences: each of {} ranks has {} of {} tokens ({}); keys and values by {}",
                        mesh.cp, options.training.seq_len / mesh.cp, options.training.seq_len,
                        config.parallelism.context_parallel_load_balancer,
                        config.parallelism.context_parallel_rotate_method));
    if (const std::string recomputed = engine.recompute().text(engine.decoder().layers_here());
        !recomputed.empty())
        lines.push_back(recomputed);
    if (config.training.enable_cpu_offload) lines.push_back(describe_offloading(engine));
    lines.push_back(engine.plan().text(memory_limit));
    if (mesh.pp > 1) {
        std::vector<std::string> totals;
        for (const MemoryPlan& plan : plans_of_stages(m, options))
            totals.push_back(bytes_text(double(plan.total())));
        lines.push_back("that was rank 0 and its stages; the plans of the pipeline ranks: " +
                        join(totals, ", "));
    }
    for (const std::string& line : describe_pipeline(options.pipeline)) lines.push_back(line);
    return lines;
}

namespace {

// What a deck names and this host does not have: a deck may be checked elsewhere than where it runs.
std::vector<std::string> absent_files(const Config& config) {
    std::vector<std::string> notices;
    const auto look = [&](const char* option, const std::string& path) {
        if (!path.empty() && !std::filesystem::exists(path))
            notices.push_back(fmt::format(
                "Notice: {} = \"{}\": there is no such file or folder here; a run needs it", option, path));
    };
    for (const std::string& path : config.training.dataset_path) look("training.dataset_path", path);
    if (config.validation.enable)
        for (const std::string& path : config.validation.dataset_path) look("validation.dataset_path", path);
    look("checkpoint.initial_load_path", config.checkpoint.initial_load_path);
    if (config.model.hf_assets_path != Config().model.hf_assets_path)
        look("model.hf_assets_path", config.model.hf_assets_path);
    return notices;
}

}  // namespace

std::optional<int64_t> memory_limit_here(Backend backend) {
    if (backend == Backend::cpu) return memory_limit_bytes();
    return visible_gpus() > 0 ? std::optional(open_gpu(0)->memory_bytes()) : std::nullopt;
}

std::vector<std::string> dry_run_lines(const CommandLine& command_line, int ranks) {
    const Config& config = command_line.config;
    std::vector<std::string> lines = command_line.notices;
    const auto add = [&](const std::vector<std::string>& more) {
        lines.insert(lines.end(), more.begin(), more.end());
    };
    const MeshShape mesh = mesh_shape(config, ranks);
    const DecoderConfig model = model_from_deck(config);
    std::vector<std::string> notices;
    schedule_from_deck(config, &notices);
    const int threads = share_of_cpu(int(config.training.threads), 0, 1).threads;
    const Engine engine(model, engine_options(config, model, mesh, 0, threads));
    const std::optional<int64_t> limit = memory_limit_here(engine.options().backend);
    add(describe_run(config, mesh, engine, limit));
    add(notices);
    add(absent_files(config));
    if (limit && std::ranges::any_of(plans_of_stages(model, engine.options()),
                                     [&](const MemoryPlan& plan) { return plan.total() > *limit; }))
        lines.push_back("Notice: a rank would not fit into the memory here; a run here would be refused. " +
                        memory_advice(model, engine.options(), *limit, memory_limit_bytes()));
    return lines;
}

void dry_run(const CommandLine& command_line, int world_size) {
    const int ranks = command_line.ranks > 0 ? command_line.ranks : world_size;
    for (const std::string& line : dry_run_lines(command_line, ranks)) log::info("{}", line);
    log::info("Dry run: deck and mesh are valid; nothing was run");
}

}  // namespace coeus
