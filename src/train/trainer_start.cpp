// SPDX-License-Identifier: Apache-2.0
// The start of a run: device, mesh, plan, data, and weights from where they are.
#include "checkpoint_exclusion.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/base/version.hpp"
#include "coeus/base/wall_time.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/engine/memory_advice.hpp"
#include "coeus/kernels/autotune.hpp"
#include "coeus/plan/machine.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/train/setup.hpp"
#include "coeus/train/trainer.hpp"
#include "start_hints.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace coeus {

namespace {

constexpr const char* before_training = "before the first step; nothing was lost";

// Of this rank, near its device. Collective.
CpuShare cpu_share(const Config& config, const Device& device, const MpiRuntime& mpi) {
    const int sharing = mpi.local_ranks_with(cpu_binding()).ranks;
    NearDevice near = {.processors = processors_near(device.bus_id())};
    const MpiRuntime::Alike alike = mpi.local_ranks_with(near.processors);
    near.ranks = alike.ranks;
    near.number = alike.number;
    return share_of_cpu(int(config.training.threads), mpi.local_rank(), mpi.local_size(), sharing, near);
}

JobEnd::Options job_end(const Config& config) {
    JobEnd::Options end;
    end.wall_seconds = seconds_of_wall_time(config.training.max_wall_time);
    end.start -= StartUp::seconds_since_exec();
    if (std::getenv("SLURM_JOB_ID")) end.ask = slurm_job_end;
    return end;
}

}  // namespace

Trainer::Trainer(const CommandLine& command_line, const MpiRuntime& mpi, Watchdog& watchdog,
                 StartUp& start_up)
    : start_up_(start_up),
      config_(command_line.config),
      notices_(command_line.notices),
      watchdog_(watchdog),
      device_(config_, Communicator::world("devices"), mpi.local_rank(), mpi.local_size()),
      mesh_(start_up.make<Mesh>("mesh", Communicator::world("world"), mesh_shape(config_, mpi.world_size()))),
      faults_(Faults::from_environment(mesh_.world().rank())),
      stop_(mesh_.world(), job_end(config_), config_.checkpoint.walltime_margin),
      folder_(config_, mesh_.world()),
      cpu_(cpu_share(config_, device_.device(), mpi)),
      model_(model_from_deck(config_, mesh_.world())),
      engine_(start_up.make<Engine>("plan", model_,
                                    engine_options(config_, model_, mesh_.shape(), mesh_.world().rank(),
                                                   cpu_.threads, device_.transport()))),
      data_(start_up.make<TrainingData>("data", config_, model_.vocab, folder_.data_folder(), mesh_.world(),
                                        cpu_.cores)),
      schedule_(schedule_from_deck(config_, &notices_)),
      saving_(config_, model_, folder_, mesh_, engine_),
      reporting_(folder_, mesh_.world(), device_.device()) {
    watchdog_.set_gpu(device_.device().bus_id());
    watchdog_.meet_in(folder_.root());
    apply(cpu_);
    const int64_t limit = device_.device().memory_bytes() / device_.sharing();
    global_batch_ = config_.training.local_batch_size * mesh_.size(dp) * engine_.options().accumulation;
    if (first_rank()) {
        log::info("Job: {}", config_.job.description);
        for (const std::string& notice : notices_) log::info("{}", notice);
        if (config_.job.print_config) log::info("The effective deck:\n{}", deck_text(config_));
        log::info("Coeus {} on {} ({}), {}, {} {} per rank ({}{})", version(), cpu_name(), cpu_vector_level(),
                  MpiRuntime::library_version(), cpu_.threads, cpu_.threads == 1 ? "thread" : "threads",
                  cpu_.reason, cpu_.first_core >= 0 ? ", pinned" : "");
        if (!device_.text().empty())
            log::info("{}{}", device_.device().is_host() ? "Computing on the CPU: " : "Computing on ",
                      device_.text());
        if (const std::string& transport = device_.transport().text; !transport.empty())
            log::info("Ranks exchange tensors by {}", transport);
        if (!device_.device().is_host())
            log::info("Steps are given to the GPU {}",
                      engine_.options().graphs ? "as CUDA graphs"
                      : config_.training.disable_cuda_graphs
                          ? "kernel by kernel: training.disable_cuda_graphs"
                          : "kernel by kernel: CUDA graphs need NCCL between the ranks");
        for (const std::string& line : describe_run(config_, mesh_.shape(), engine_, limit))
            log::info("{}", line);
        log::info("{}", data_.summary());
        if (const std::string passes = data_.passes(config_.training.steps * global_batch_); !passes.empty())
            log::info("All {} steps read {}", config_.training.steps, passes);
        for (const std::string& hint : start_hints(start_facts(cpu_, mpi.local_size(), config_)))
            log::info("Hint: {}", hint);
        if (config_.checkpoint.enable && !config_.checkpoint.load_only)
            if (const std::string advice =
                    striping_advice(file_system_of(saving_.files().folder()), saving_.files().folder(),
                                    saving_.full_state_bytes(), saving_.files().files());
                !advice.empty())
                log::info("Hint: {}", advice);
    }
    stop_.end_if_agreed(before_training);
    require_all_fit(limit, memory_limit_bytes() / mpi.local_size());
    if (const auto& library = device_.transport().nccl)
        mesh_.connect(nccl_.emplace(*library, mesh_.world(), device_.device(), &watchdog_.nccl()));
    start_up.phase("memory", [&] { engine_.allocate(mesh_, device_.device()); });
    if (config_.kernels.autotune) autotune_products(engine_.exec(), user_cache("products"));
    if (const std::string attention = attention_from_deck(config_, mesh_.world(), engine_.exec());
        !attention.empty() && first_rank())
        log::info("Attention by {}", attention);
    if (nccl_) log::debug("NCCL: {}", nccl_->text());
    peak_flops_ = start_up.phase("peak", [&] { return measure_peak(mpi.local_size()); });
    guards_.emplace(config_.guards, engine_, watchdog_.hosts());
    stop_.end_if_agreed(before_training);
    const bool goes_on = start_up.phase("weights", [&] { return load(); });
    guards_->begin(place());
    on_first_rank(mesh_.world(), [&] {
        if (!goes_on || step_ == 0)
            if (const auto aside = folder_.put_earlier_run_aside(config_))
                log::info("There was a run in {}: its metrics are kept in {}", folder_.root().string(),
                          aside->string());
        folder_.write_deck(config_);
    });
    if (config_.checkpoint.create_seed_checkpoint) return;  // there will be nothing to measure
    if (data_.validation()) evaluator_.emplace(config_, *data_.validation());
    if (config_.metrics.straggler_freq > 0 && mesh_.world().size() > 1)
        stragglers_.emplace(Stragglers::Options{.every = config_.metrics.straggler_freq,
                                                .percent = config_.metrics.straggler_percent},
                            mesh_, watchdog_.hosts(), engine_.exec(), engine_.options().graphs,
                            reporting_.gpu());
    saving_.begin([this](const SavedCheckpoint& done) { note_saved(done); });
    // a data rank's tokens are the work of all ranks that divide its model and its sequences
    const double tokens = double(global_batch_ * config_.training.seq_len) / mesh_.world().size();
    reporting_.begin(past(), {.tokens_per_step = tokens,
                              .flops_per_token = model_.flops_per_token(config_.training.seq_len),
                              .peak_flops = peak_flops_});
}

Trainer::~Trainer() {
    engine_.forget_graphs();
}

// FLOP/s of this rank's part of its device, if known. All ranks of a host measure together, as they compute
// together; rank 0 alone keeps what was best.
std::optional<double> Trainer::measure_peak(int local_size) {
    if (const Device& device = device_.device(); !device.is_host()) {
        const std::optional<double> peak = gpu_peak_flops(device.name(), compute_dtype(config_));
        if (!peak && first_rank())
            log::info("The peak of {} in {} is not known: no MFU", device.name(),
                      name_of(compute_dtype(config_)));
        return peak ? std::optional(*peak / device_.sharing()) : std::nullopt;
    }
    return cpu_peak_flops(
        engine_.exec(), cpu_kernels(), compute_dtype(config_),
        fmt::format("{}, {} ranks, {}, {}", cpu_name(), local_size, version(), build_description()),
        user_cache("peaks"), mesh_.world());
}

// Plans and hosts differ: all ranks learn whether any lacks memory, and say what the one says that lacks
// most.
void Trainer::require_all_fit(int64_t limit, int64_t host_limit) const {
    const MemoryPlan& plan = engine_.plan();
    const int64_t lacking = plan.total() - limit, most = mesh_.world().all_reduce(lacking, Reduce::max),
                  most_on_host = mesh_.world().all_reduce(plan.total(MemoryPlace::host), Reduce::max);
    together(mesh_.world(), [&] {
        if (lacking == most)
            require_fits(plan, limit,
                         [&] { return memory_advice(model_, engine_.options(), limit, host_limit); });
        if (plan.total(MemoryPlace::host) == most_on_host) require_fits_on_host(plan, host_limit);
    });
}

bool Trainer::in_own_folder(const CheckpointFolder::Loaded& loaded) const {
    std::error_code absent;
    return std::filesystem::equivalent(std::filesystem::absolute(loaded.path).parent_path(),
                                       saving_.files().folder(), absent);
}

bool Trainer::load() {
    const Timer timer;
    Parameters& parameters = engine_.decoder().parameters();
    const Config::Checkpoint& options = config_.checkpoint;
    std::optional<CheckpointFolder::Loaded> loaded;
    Words excluded = options.exclude_from_loading;
    if (options.create_seed_checkpoint && !list_checkpoints(saving_.files().folder()).empty())
        throw ConfigError(
            "checkpoint.create_seed_checkpoint = true: there are checkpoints in {} already; choose another "
            "checkpoint.folder or job.dump_folder",
            saving_.files().folder());
    if (options.enable)
        loaded = options.load_step >= 0 ? saving_.files().load_step(options.load_step, saving_.full_state())
                                        : saving_.files().load_newest(saving_.full_state());
    if (loaded) excluded = still_to_exclude(excluded, loaded->train.deck);
    if (!loaded && !options.initial_load_path.empty() && !options.initial_load_model_only) {
        on_first_rank(mesh_.world(), [&] {
            std::error_code ignored;
            if (std::filesystem::is_directory(options.initial_load_path, ignored))
                throw ConfigError(
                    "checkpoint.initial_load_path = \"{}\": is a folder; with "
                    "checkpoint.initial_load_model_only = false name one of its files, step-*.h5",
                    options.initial_load_path);
        });
        loaded = {options.initial_load_path,
                  load_checkpoint(options.initial_load_path,
                                  excludes(excluded, "optimizer") ? saving_.weights() : saving_.full_state(),
                                  mesh_.world())};
    }
    if (loaded) {
        if (excludes(excluded, "optimizer")) parameters.clear_moments(engine_.exec(), engine_.kernels());
        resume(*loaded, excluded);
        saving_.note_loaded(in_own_folder(*loaded) && excluded.empty() ? std::optional(step_) : std::nullopt,
                            timer.seconds());
    } else if (const std::string source = load_initial_weights(config_, engine_.decoder(), mesh_);
               !source.empty()) {
        if (first_rank()) log::info("Starting from the weights of {}", source);
    } else {
        parameters.initialise(uint64_t(config_.debug.seed), cpu_.threads);
        if (first_rank()) log::info("No checkpoint was found: this is a fresh start");
    }
    parameters.refresh_compute(engine_.exec(), engine_.kernels());
    return loaded && in_own_folder(*loaded);
}

void Trainer::resume(const CheckpointFolder::Loaded& loaded, const Words& excluded) {
    if (loaded.train.seed != config_.debug.seed && !excludes(excluded, "dataloader"))
        throw ConfigError(
            "debug.seed = {}: the checkpoint {} was made with {}; the data order would change. Set it to {}, "
            "or start in another job.dump_folder",
            config_.debug.seed, loaded.path, loaded.train.seed, loaded.train.seed);
    if (first_rank())
        for (const std::string& change : changes_since(loaded.train.deck, config_)) log::warn("{}", change);
    const TrainRecord train = reset_parts(loaded.train, excluded);
    step_ = train.step;
    sample_ = train.sample;
    schedule_begins_ = step_ - train.schedule_step.value_or(step_);
    optimizer_begins_ = step_ - train.optimizer_step.value_or(step_);
    if (schedule_begins_ != 0) {
        std::vector<std::string> notices;
        schedule_ = schedule_from_deck(config_, &notices, schedule_begins_);
        for (const std::string& notice : notices)
            if (first_rank()) log::info("{}", notice);
    }
    guards_->resume(train.guards);
    validation_is_left_ = train.validation_is_left && config_.validation.enable;
    // steps and samples have been counted together, unless one of them began anew
    const bool together = !excludes(config_.checkpoint.exclude_from_loading, "dataloader") &&
                          !excludes(config_.checkpoint.exclude_from_loading, "train_state");
    const int64_t seen = sample_ - guards_->samples_passed_over();
    if (const int64_t before = together && step_ > 0 && seen % step_ == 0 ? seen / step_ : global_batch_;
        first_rank() && before != global_batch_)
        log::warn(
            "a step takes {} sequences now; until the checkpoint it took {} (training.global_batch_size "
            "keeps it on any number of ranks)",
            global_batch_, before);
    tokens_seen_ = train.tokens_seen;
    if (!first_rank()) return;
    log::info("Resuming from {}: step {}, {} tokens seen", loaded.path, step_, with_commas(tokens_seen_));
    if (const std::string text = describe_exclusion(config_.checkpoint.exclude_from_loading, excluded);
        !text.empty())
        log::info("{}", text);
}

}  // namespace coeus
