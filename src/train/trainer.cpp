// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/trainer.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/base/version.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/named_range.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/kernels/autotune.hpp"
#include "coeus/plan/machine.hpp"
#include "coeus/train/exclusion.hpp"
#include "coeus/train/hints.hpp"
#include "coeus/train/initial_weights.hpp"
#include "coeus/train/memory_advice.hpp"
#include "coeus/train/memory_snapshot.hpp"
#include "coeus/train/model_setup.hpp"
#include "coeus/train/pretrained.hpp"
#include "coeus/train/report.hpp"
#include "coeus/train/setup.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

namespace coeus {

namespace {

constexpr double gib = 1024.0 * 1024.0 * 1024.0;
constexpr int64_t profile_warmup = 2;  // steps that a profile leaves out, unless there are no others

Tensor ids(std::span<const int32_t> values) {
    return Tensor(const_cast<int32_t*>(values.data()), Dtype::i32,
                  {int64_t(values.size())});  // read only by contract
}

void add_gpu_sample(StepMetrics& m, const GpuSample& gpu) {
    if (gpu.memory_used) m.gpu_memory_gib = double(*gpu.memory_used) / gib;
    m.gpu_power_w = gpu.power;
    m.gpu_clock_mhz = gpu.sm_clock;
    m.gpu_temperature_c = gpu.temperature;
    if (gpu.throttle_reasons) m.gpu_throttle = throttle_text(*gpu.throttle_reasons);
}

// Of this rank, near its device. Collective.
CpuShare cpu_share(const Config& config, const Device& device, const MpiRuntime& mpi) {
    const int sharing = mpi.local_ranks_with(cpu_binding()).ranks;
    NearDevice near = {.processors = processors_near(device.bus_id())};
    const MpiRuntime::Alike alike = mpi.local_ranks_with(near.processors);
    near.ranks = alike.ranks;
    near.number = alike.number;
    return share_of_cpu(int(config.training.threads), mpi.local_rank(), mpi.local_size(), sharing, near);
}

// At once: what this rank waits for may never come. The other ranks end with it, and NCCL's kernels with
// their processes.
void end_process(const std::string& message) {
    log::error("{}", message);
    log::flush();
    end_mpi_after_error(int(ExitCode::system), false);
    std::_Exit(int(ExitCode::system));
}

// Rows [first, first + count) of a step's batch.
LocalBatch local_batch(const StepBatch& batch, int64_t first, int64_t count, bool document_mask) {
    const auto rows = [&](std::span<const int32_t> all) {
        return ids(all.subspan(size_t(first * batch.seq_len), size_t(count * batch.seq_len)));
    };
    return {.sequences = count,
            .tokens = rows(batch.tokens),
            .labels = rows(batch.labels),
            .document_start = document_mask ? rows(batch.document_start) : Tensor{}};
}

}  // namespace

Trainer::Trainer(const CommandLine& command_line, const MpiRuntime& mpi)
    : config_(command_line.config),
      notices_(command_line.notices),
      device_(config_, Communicator::world("devices"), mpi.local_rank(), mpi.local_size()),
      mesh_(Communicator::world("world"), mesh_shape(config_, mpi.world_size())),
      folder_(config_, mesh_.world()),
      cpu_(cpu_share(config_, device_.device(), mpi)),
      model_(model_from_deck(config_)),
      engine_(model_, engine_options(config_, model_, mesh_.shape(), mesh_.world().rank(), cpu_.threads,
                                     device_.transport())),
      data_(config_, model_.vocab, folder_.data_folder(), mesh_.world(), cpu_.cores),
      schedule_(schedule_from_deck(config_, &notices_)),
      checkpoint_(folder_.checkpoint_folder().string(), config_.checkpoint.keep_latest_k, mesh_.world(),
                  config_.checkpoint.files) {
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
                    striping_advice(file_system_of(checkpoint_.folder()), checkpoint_.folder(),
                                    full_state_bytes(), checkpoint_.files());
                !advice.empty())
                log::info("Hint: {}", advice);
    }
    require_all_fit(limit, memory_limit_bytes() / mpi.local_size());
    if (const auto& library = device_.transport().nccl) connect_by_nccl(*library, mpi.host());
    engine_.allocate(mesh_, device_.device());
    if (config_.kernels.autotune) autotune_products(engine_.exec(), user_cache("products"));
    if (const std::string attention = attention_from_deck(config_, mesh_.world(), engine_.exec());
        !attention.empty() && first_rank())
        log::info("Attention by {}", attention);
    if (nccl_) log::debug("NCCL: {}", nccl_->text());
    peak_flops_ = measure_peak(mpi.local_size());
    if (const Device& device = device_.device(); !device.is_host())
        gpu_monitor_ = GpuMonitor::of_bus_id(device.bus_id());
    flops_per_token_ = model_.flops_per_token(config_.training.seq_len);
    const bool goes_on = load();
    on_first_rank(mesh_.world(), [&] {
        if (!goes_on || step_ == 0)
            if (const auto aside = folder_.put_earlier_run_aside(config_))
                log::info("There was a run in {}: its metrics are kept in {}", folder_.root().string(),
                          aside->string());
        folder_.write_deck(config_);
    });
    if (config_.checkpoint.create_seed_checkpoint) return;  // there will be nothing to measure
    if (saves_beside(config_)) beside_.emplace(checkpoint_, mesh_.world(), full_state(), engine_.exec());
    if (data_.validation()) evaluator_.emplace(config_, *data_.validation());
    on_first_rank(mesh_.world(), [&] { metrics_.emplace(folder_.metrics_file(), step_); });
    together(mesh_.world(), [&] {
        if (const auto& folder = folder_.tensorboard_folder()) tensorboard_.emplace(*folder, step_);
    });
}

Trainer::~Trainer() {
    engine_.forget_graphs();
}

void Trainer::connect_by_nccl(const NcclLibrary& library, const std::string& host) {
    const Device& device = device_.device();
    watch_.emplace(Watch::Settings{
        .who = fmt::format("rank {} on host {}, GPU {}", mesh_.world().rank(), host, device.bus_id()),
        .fail = end_process});
    watch_->allow(double(config_.comm.init_timeout_seconds), "comm.init_timeout_seconds");
    // the host does not see what a graph is at: a step is one operation, and takes as long as others did
    if (engine_.options().graphs) steps_by_graph_.emplace(*watch_, mesh_.world().name(), nullptr, nullptr);
    watch_->start();
    mesh_.connect(nccl_.emplace(library, mesh_.world(), device, &*watch_));
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
                  most_on_host = mesh_.world().all_reduce(plan.on_host.total(), Reduce::max);
    together(mesh_.world(), [&] {
        if (lacking == most)
            require_fits(plan, limit,
                         [&] { return memory_advice(model_, engine_.options(), limit, host_limit); });
        if (plan.on_host.total() == most_on_host) require_fits_on_host(plan, host_limit);
    });
}

bool Trainer::load() {
    Parameters& parameters = engine_.decoder().parameters();
    const Config::Checkpoint& options = config_.checkpoint;
    std::optional<Checkpoint::Loaded> loaded;
    Words excluded = options.exclude_from_loading;
    if (options.create_seed_checkpoint && !list_checkpoints(checkpoint_.folder()).empty())
        throw ConfigError(
            "checkpoint.create_seed_checkpoint = true: there are checkpoints in {} already; choose another "
            "checkpoint.folder or job.dump_folder",
            checkpoint_.folder());
    if (options.enable)
        loaded = options.load_step >= 0 ? checkpoint_.load_step(options.load_step, full_state())
                                        : checkpoint_.load_newest(full_state());
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
                                  excludes(excluded, "optimizer") ? weights() : full_state(), mesh_.world())};
    }
    if (loaded) {
        if (excludes(excluded, "optimizer")) parameters.clear_moments(engine_.exec(), engine_.kernels());
        resume(*loaded, excluded);
    } else if (const std::string source = load_initial_weights(config_, engine_.decoder(), mesh_);
               !source.empty()) {
        if (first_rank()) log::info("Starting from the weights of {}", source);
    } else {
        parameters.initialise(uint64_t(config_.debug.seed), cpu_.threads);
        if (first_rank()) log::info("No checkpoint was found: this is a fresh start");
    }
    parameters.refresh_compute(engine_.exec(), engine_.kernels());
    std::error_code absent;
    return loaded && std::filesystem::equivalent(std::filesystem::absolute(loaded->path).parent_path(),
                                                 checkpoint_.folder(), absent);
}

void Trainer::resume(const Checkpoint::Loaded& loaded, const Words& excluded) {
    if (loaded.train.seed != config_.debug.seed && !excludes(excluded, "dataloader"))
        throw ConfigError(
            "debug.seed = {}: the checkpoint {} was made with {}; the data order would change. Set it to {}, "
            "or start in "
            "another job.dump_folder",
            config_.debug.seed, loaded.path, loaded.train.seed, loaded.train.seed);
    if (first_rank())
        for (const std::string& change : changes_since(loaded.train.deck, config_)) log::warn("{}", change);
    const TrainRecord train = begun_anew(loaded.train, excluded);
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
    // steps and samples have been counted together, unless one of them began anew
    const bool together = !excludes(config_.checkpoint.exclude_from_loading, "dataloader") &&
                          !excludes(config_.checkpoint.exclude_from_loading, "train_state");
    if (const int64_t before =
            together && step_ > 0 && sample_ % step_ == 0 ? sample_ / step_ : global_batch_;
        first_rank() && before != global_batch_)
        log::warn(
            "a step takes {} sequences now; until the checkpoint it took {} (training.global_batch_size "
            "keeps "
            "it on any number of ranks)",
            global_batch_, before);
    tokens_seen_ = train.tokens_seen;
    if (!first_rank()) return;
    log::info("Resuming from {}: step {}, {} tokens seen", loaded.path, step_, with_commas(tokens_seen_));
    if (const std::string text = describe_exclusion(config_.checkpoint.exclude_from_loading, excluded);
        !text.empty())
        log::info("{}", text);
}

void Trainer::run() {
    if (config_.checkpoint.create_seed_checkpoint) return save_seed();
    const int64_t steps = config_.training.steps;
    if (step_ >= steps) {
        if (export_is_missing()) export_model();
        if (first_rank())
            log::info(
                "This run is already at step {} of training.steps = {}: nothing to do. Raise training.steps "
                "to go on",
                step_, steps);
        return;
    }
    BatchLoader loader(data_.training(), {.global_batch = global_batch_,
                                          .rank = mesh_.rank(dp),
                                          .ranks = mesh_.size(dp),
                                          .first_sample = sample_});
    if (first_rank()) log::info("Training starts at step {} of {}", step_ + 1, steps);
    if (config_.profiling.kernels) profile_.emplace(Stamps(engine_.exec()));
    if (config_.profiling.enable_profiling)
        traces_.emplace(config_.profiling, folder_.root() / config_.profiling.save_traces_folder, mesh_,
                        engine_);
    for (int64_t done = 0; step_ < steps; ++done) {
        const bool profiled = profile_ && (done >= profile_warmup || steps - step_ <= 1);
        engine_.exec().observer = profiled ? &*profile_ : nullptr;
        if (traces_) traces_->begin(step_ + 1);
        std::optional<MemorySnapshot> snapshot;
        if (snapshot_due())
            snapshot.emplace(engine_, size_t(config_.profiling.memory_snapshot_max_entries),
                             engine_.exec().observer);
        const Timer timer;
        const StepBatch batch = loader.next();
        const bool watched = steps_by_graph_ && done > 0;
        if (watched) steps_by_graph_->begin("step", 0, nullptr, 2 * slowest_step_);
        train_step(batch);
        if (watched) steps_by_graph_->end(nullptr);
        const double seconds = timer.seconds();
        slowest_step_ = std::max(slowest_step_, seconds);
        if (watch_ && done == 0)
            watch_->allow(double(config_.comm.train_timeout_seconds), "comm.train_timeout_seconds");
        if (snapshot) snapshot->write(folder_.memory_snapshot_folder(), step_ + 1, mesh_.world().rank());
        snapshot.reset();
        if (traces_) traces_->end(step_ + 1);
        clock_.add(seconds, batch.seconds_waited);
        if (profiled) profile_->end_step(seconds, batch.seconds_waited);
        engine_.exec().observer = nullptr;
        ++step_;
        report(batch);
        validate();
        save();  // last: a run killed here has everything of the step in its files
    }
    if (first_rank()) {
        log::info("Training completed at step {}", step_);
        write_page();
    }
    if (profile_) report_profile();
}

bool Trainer::snapshot_due() const {
    const Config::Profiling& profiling = config_.profiling;
    return profiling.enable_memory_snapshot &&
           (step_ + 1) % profiling.memory_snapshot_freq.value_or(profiling.profile_freq) == 0;
}

void Trainer::report_profile() {
    // all ranks measure together, as they computed together; each writes its own table into its own log
    mesh_.world().barrier();
    const double bandwidth = copy_bandwidth(engine_.exec(), engine_.kernels());
    log::info("Profile of rank {}: {}", mesh_.world().rank(),
              profile_->table({.flops_per_second = peak_flops_.value_or(0), .bytes_per_second = bandwidth}));
}

void Trainer::train_step(const StepBatch& batch) {
    const NamedRange range("step {}", step_ + 1);
    const int64_t valid_tokens = mesh_[dp].all_reduce(batch.valid_tokens);
    if (valid_tokens == 0)
        throw ConfigError(
            "step {}: none of its tokens is a label, so that there is no loss (samples {} to {}); look at "
            "/loss_mask of "
            "the training data",
            step_ + 1, batch.first_sample, batch.first_sample + global_batch_ - 1);
    const int64_t sequences = engine_.options().training.sequences;
    engine_.compute_gradients(
        step_ + 1 - optimizer_begins_, config_.optimizer.lr * schedule_.factor(step_ - schedule_begins_),
        valid_tokens, [&](int64_t i) {
            return local_batch(batch, i * sequences, sequences, config_.training.document_mask);
        });
    if (beside_) beside_->wait_for_copies();
    if (!engine_.update()) stop_not_finite();
    // the largest mean of a data rank: its sum is scaled by the tokens of all
    const double own_loss = mesh_[pp].all_reduce(mesh_[cp].all_reduce(engine_.scalars().own_loss));
    const double own_mean = batch.valid_tokens > 0
                                ? own_loss * double(valid_tokens) / double(batch.valid_tokens)
                                : -std::numeric_limits<double>::infinity();
    loss_max_ = mesh_[dp].all_reduce(own_mean, Reduce::max);
    sample_ += global_batch_;
    tokens_seen_ += batch.num_samples * batch.seq_len * mesh_.size(dp);
}

void Trainer::stop_not_finite() {
    if (beside_) report_saved(beside_->finish());
    const std::vector<StepFile> good = list_checkpoints(checkpoint_.folder());
    throw NotFiniteError(
        fmt::format("step {}: loss {} and gradient norm {} are not both finite; the optimizer step was not "
                    "taken. {}. Usual remedies: a lower "
                    "optimizer.lr, a longer lr_scheduler.warmup_steps, a look at the data of this step",
                    step_ + 1, engine_.scalars().loss, engine_.scalars().grad_norm,
                    good.empty() ? std::string("There is no checkpoint to go back to")
                                 : "The last good checkpoint is " + good.back().path));
}

void Trainer::report(const StepBatch& batch) {
    const bool due = step_ == 1 || step_ % config_.metrics.log_freq == 0 || step_ == config_.training.steps;
    if (!due) return;
    const StepScalars& scalars = engine_.scalars();
    StepMetrics m;
    m.step = step_;
    m.loss = scalars.loss;
    m.loss_max = loss_max_;
    m.grad_norm = scalars.grad_norm;
    m.lr = scalars.learning_rate;
    m.tokens_seen = tokens_seen_;
    m.epoch = double(sample_) / double(data_.training().num_windows());
    const Device& device = device_.device();
    m.memory_gib = double(device.peak_bytes()) / gib;
    m.memory_percent = 100 * double(device.peak_bytes()) / double(device.memory_bytes());
    m.resident_gib = double(resident_bytes()) / gib;
    if (gpu_monitor_) add_gpu_sample(m, gpu_monitor_->sample());
    // a data rank's tokens are the work of all ranks that divide its model and its sequences
    const double tokens = double(batch.num_samples * batch.seq_len) / mesh_.size(pp | cp | tp);
    clock_.finish(m, tokens, flops_per_token_, peak_flops_, config_.training.steps - step_);
    log::info("{}", console_line(m, log::colored()));
    if (metrics_) metrics_->write(json_line(m));
    if (tensorboard_) tensorboard_->write(m.step, tensorboard_scalars(m));
}

void Trainer::validate() {
    const bool due = step_ == 1 || step_ % config_.validation.freq == 0;
    if (!evaluator_ || !due) return;
    ValidationMetrics m = evaluator_->run(engine_);
    m.step = step_;
    const Device& device = device_.device();
    m.memory_gib = double(device.peak_bytes()) / gib;
    m.memory_percent = 100 * double(device.peak_bytes()) / double(device.memory_bytes());
    log::info("{}", console_line(m, log::colored()));
    if (metrics_) metrics_->write(json_line(m));
    if (tensorboard_) tensorboard_->write(m.step, tensorboard_scalars(m));
}

void Trainer::write_page() const {
    try {
        write_report(folder_.report_file(), report_html(read_runs({folder_.root().string()})));
        log::info("Plots of this run: {}", folder_.report_file().string());
    } catch (const std::exception& failure) {
        // the weights are safe; coeus report can draw it again
        log::warn("There is no {}: {}", folder_.report_file().string(), failure.what());
    }
}

TrainRecord Trainer::record() const {
    return {.step = step_,
            .tokens_seen = tokens_seen_,
            .seed = config_.debug.seed,
            .sample = sample_,
            .deck = deck_text(config_),
            .version = version(),
            .model = describe_model(model_),
            .schedule_step = step_ - schedule_begins_,
            .optimizer_step = step_ - optimizer_begins_};
}

void Trainer::save_seed() {
    const Checkpoint::Saved saved = checkpoint_.save(record(), full_state());
    log::info(
        "Saved the initial weights as {}, from which any number of ranks starts. Coeus does not need it: "
        "without "
        "one, ranks start from the same weights for the same debug.seed",
        saved.path);
}

int64_t Trainer::full_state_bytes() const {
    const Parameters& parameters = engine_.decoder().parameters();
    return 3 * parameters.count() * size_of(parameters.types().master);  // with both moments
}

std::vector<CheckpointTensor> Trainer::weights() const {
    return checkpoint_tensors(engine_.decoder().parameters(), mesh_[dp_replicate], false);
}

std::vector<CheckpointTensor> Trainer::full_state() const {
    return checkpoint_tensors(engine_.decoder().parameters(), mesh_[dp_replicate], true);
}

void Trainer::save() {
    const auto& options = config_.checkpoint;
    if (!options.enable || options.load_only) return;
    if (beside_) report_saved(beside_->poll());
    const bool last = step_ == config_.training.steps;
    const bool due =
        last || step_ % options.interval == 0 || (step_ == 1 && options.enable_first_step_checkpoint);
    if (!due) return;
    const NamedRange range("save_checkpoint");
    if (beside_) report_saved(beside_->finish());
    if (beside_ && !last) {
        beside_->begin(record());
        return;
    }
    const Timer timer;
    const Checkpoint::Saved saved = checkpoint_.save(record(), full_state());
    const double seconds = timer.seconds();
    report_saved(SavedCheckpoint{step_, saved, seconds, seconds});
    if (last && options.last_save_model_only) export_model();
}

std::string Trainer::export_path() const {
    return config_.checkpoint.last_save_in_hf
               ? (folder_.checkpoint_folder() / fmt::format("hf-{:08}", step_)).string()
               : checkpoint_.model_path_of(step_);
}

// True where the run was killed after its last checkpoint, before it had written the model alone.
bool Trainer::export_is_missing() const {
    const auto& options = config_.checkpoint;
    if (!options.enable || options.load_only || !options.last_save_model_only ||
        step_ != config_.training.steps)
        return false;
    std::error_code ignored;
    const bool missing = first_rank() && std::filesystem::exists(checkpoint_.path_of(step_), ignored) &&
                         !std::filesystem::exists(export_path(), ignored);
    return mesh_.world().all_reduce(int64_t(missing), Reduce::max) != 0;
}

void Trainer::export_model() {
    const std::string& type = config_.checkpoint.export_dtype;
    const Dtype dtype = type == "bfloat16" ? Dtype::bf16 : type == "float16" ? Dtype::f16 : Dtype::f32;
    const std::string path = config_.checkpoint.last_save_in_hf
                                 ? export_hub(weights(), dtype)
                                 : checkpoint_.export_model(record(), weights(), dtype).path;
    if (first_rank()) log::info("Saved the model alone as {} ({})", path, type);
}

std::string Trainer::export_hub(const std::vector<CheckpointTensor>& weights, Dtype dtype) {
    std::string folder = export_path();
    std::vector<std::string> paths;
    std::vector<Shape> shapes;
    for (const CheckpointTensor& tensor : weights) {
        paths.push_back(tensor.path);
        shapes.push_back(tensor.shape);
    }
    // of a run that took this step before
    on_first_rank(mesh_.world(), [&] { std::filesystem::remove_all(folder); });
    HubWriter writer(folder, hub_config_of(model_), hub_entries(paths, shapes, model_), dtype,
                     first_rank() ? hub_tokenizer(config_.model.tokenizer()) : HubTokenizer(), mesh_.world());
    write_hub(writer, weights, mesh_.world());
    return folder;
}

void Trainer::report_saved(const std::optional<SavedCheckpoint>& done) {
    if (!done || !first_rank()) return;
    const bool beside = done->seconds_waited < done->seconds;
    log::info("Saved {}: {} in {:.2f} s, {}/s{}", done->saved.path, bytes_text(double(done->saved.bytes)),
              done->seconds, bytes_text(double(done->saved.bytes) / done->seconds),
              beside ? fmt::format(", of which training waited {:.2f} s", done->seconds_waited) : "");
    if (metrics_)
        metrics_->write(json_line(CheckpointMetrics{.step = done->step,
                                                    .at_step = step_,
                                                    .gib = double(done->saved.bytes) / gib,
                                                    .seconds = done->seconds,
                                                    .seconds_waited = done->seconds_waited}));
}

}  // namespace coeus
