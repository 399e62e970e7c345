// SPDX-License-Identifier: Apache-2.0
// The steps of a run, with logging, validation, checkpoints and the end of the run.
#include "coeus/train/trainer.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/device/named_range.hpp"
#include "coeus/metrics/load_history.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/observe/memory_snapshot.hpp"
#include "coeus/plan/cpu_peak.hpp"
#include "gpu_memory_use.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace coeus {

namespace {

constexpr int64_t profile_warmup = 2;  // steps that a profile leaves out, unless there are no others

}  // namespace

void Trainer::run() {
    if (config_.checkpoint.create_seed_checkpoint) return saving_.save_seed(record());
    const int64_t steps = config_.training.steps;
    if (progress_.is_finished(steps)) {
        saving_.export_if_missing(record());
        if (first_rank())
            log::info(
                "This run is already at step {} of training.steps = {}: nothing to do. Increase "
                "training.steps to continue",
                progress_.step, steps);
        return saving_.require_exported();
    }
    std::optional<BatchLoader> loader;
    const auto read_on = [&] {
        loader.emplace(data_.training(), BatchLoader::Options{.global_batch = global_batch_,
                                                              .rank = mesh_.rank(axis::dp),
                                                              .ranks = mesh_.size(axis::dp),
                                                              .first_sample = progress_.sample});
    };
    read_on();
    goodput_.emplace(first_rank() ? folder_.goodput_file() : "", start_up_.end(), progress_.step,
                     start_record());
    if (first_rank()) {
        log::info("{}", start_up_.text());
        log::info("Training starts at step {} of {}", progress_.step + 1, steps);
    }
    if (config_.profiling.kernels) profile_.emplace(Timestamps(engine_.exec()));
    if (config_.profiling.enable_profiling)
        traces_.emplace(config_.profiling, folder_.root() / config_.profiling.save_traces_folder, mesh_,
                        engine_);
    if (progress_.validation_is_left) {
        goodput_->during(&StartTimes::validation, [&] { validate(); });
        if (progress_.validation_is_left) end_run();
        saving_.export_if_missing(record());
    }
    for (int64_t done = 0; progress_.step < steps; ++done) {
        const StepTime time = observed_step(*loader, done >= profile_warmup || steps - progress_.step <= 1);
        if (engine_.scalars().refusals != 0) {  // the optimizer step was not taken
            goodput_->take_back(1);
            continue;
        }
        ++progress_.step;
        require_folder();
        report();
        report_stragglers(time);
        if (done == 0) report_gpu_memory("after the first step");
        if (done == 1 && engine_.options().graphs) report_gpu_memory("after the first graphs");
        if (validation_due()) goodput_->during(&StartTimes::validation, [&] { validate(); });
        if (stop_.is_agreed() && !progress_.is_finished(steps)) end_run();
        if (restore_if_bad()) {
            read_on();
            continue;
        }
        // last: if the run is killed here, its files have everything of the step
        goodput_->during(&StartTimes::saving, [&] { saving_.after_step(record()); });
        goodput_->write(progress_.step);
    }
    say_goodput("complete");
    if (first_rank()) log::info("Training completed at step {}", progress_.step);
    reporting_.write_page();
    if (profile_) report_profile();
    saving_.require_exported();
}

Trainer::StepTime Trainer::observed_step(BatchLoader& loader, bool profiled) {
    const bool profiles = profile_ && profiled;
    const Observation profiling = profiles ? engine_.observe(*profile_) : Observation();
    const Observation waiting = stragglers_ ? stragglers_->observe(progress_.step + 1) : Observation();
    if (traces_) traces_->begin(progress_.step + 1);
    std::optional<MemorySnapshot> snapshot;
    if (snapshot_due()) snapshot.emplace(engine_, size_t(config_.profiling.memory_snapshot_max_entries));
    watchdog_.begin_step(progress_.step + 1);
    const Timer timer;
    if (faults_) faults_->at_step(progress_.step + 1, engine_.decoder().parameters(), engine_.exec());
    const std::optional<StepBatch> batch = loader.next();
    if (must_stop() || !train_step(*batch)) end_run();
    const StepTime time = {timer.seconds(), batch->seconds_waited};
    watchdog_.end_step(time.seconds);
    if (snapshot)
        lost_snapshots_.attempt([&] {
            snapshot->write(folder_.memory_snapshot_folder(), progress_.step + 1, mesh_.world().rank());
        });
    snapshot.reset();
    if (traces_) traces_->end(progress_.step + 1);
    reporting_.add_step(time.seconds, time.data);
    goodput_->add_step(time.seconds, time.data);
    if (profiles) profile_->end_step(time.seconds, time.data);
    return time;
}

bool Trainer::validation_due() const {
    return evaluator_ && (progress_.step == 1 || progress_.step % config_.validation.freq == 0);
}

bool Trainer::snapshot_due() const {
    const Config::Profiling& profiling = config_.profiling;
    return profiling.enable_memory_snapshot &&
           (progress_.step + 1) % profiling.memory_snapshot_freq.value_or(profiling.profile_freq) == 0;
}

void Trainer::report_profile() {
    // all ranks measure at the same time, as they computed at the same time; each logs its own table
    mesh_.world().barrier();
    const double bandwidth = copy_bandwidth(engine_.exec(), engine_.kernels());
    log::info("Profile of rank {}: {}", mesh_.world().rank(),
              profile_->table({.flops_per_second = peak_flops_.value_or(0), .bytes_per_second = bandwidth}));
}

bool Trainer::train_step(const StepBatch& batch) {
    const NamedRange range("step {}", progress_.step + 1);
    const auto exchange = [&](Exchange kind, auto call) {
        const ObservedExchange noted(engine_.exec(), kind);
        return call();
    };
    const int64_t valid_tokens =
        exchange(Exchange::count_labels, [&] { return mesh_[axis::dp].all_reduce(batch.valid_tokens); });
    if (valid_tokens == 0)
        throw ConfigError(
            "step {}: no token is a label, so there is no loss (samples {} to {}); check /loss_mask of the "
            "training data",
            progress_.step + 1, batch.first_sample, batch.first_sample + global_batch_ - 1);
    const int64_t sequences = engine_.options().training.sequences;
    SampleRows samples = batch.samples;
    if (!config_.training.document_mask) samples.document_start = {};
    std::optional<Watchdog::Graphs> given(std::in_place, watchdog_, engine_.gives_graphs());
    const bool whole = engine_.compute_gradients(
        progress_.next_optimizer_step(), config_.optimizer.lr * schedule_.factor(progress_.schedule_step()),
        valid_tokens, [&](int64_t i) { return samples.slice(i * sequences, sequences); }, guards_->limits(),
        [this] { return !must_stop(); });
    if (!whole) return false;
    saving_.wait_for_copies();
    const int64_t twice = engine_.steps_computed_twice();
    const bool in_blocks = engine_.uses_expert_blocks();
    const bool taken = engine_.update();
    given.reset();
    if (engine_.steps_computed_twice() > twice && first_rank())
        log::info(
            "Step {} was computed twice, the second time not as a CUDA graph: more rows went from one rank "
            "to "
            "the experts of another than model.non_blocking_capacity_factor = {} has room for ({} such steps "
            "since the start)",
            progress_.step + 1, config_.model.non_blocking_capacity_factor, engine_.steps_computed_twice());
    if (in_blocks && !engine_.uses_expert_blocks() && first_rank())
        log::warn(
            "Three of ten steps were computed twice. From now on, steps do not run as CUDA graphs; a larger "
            "model.non_blocking_capacity_factor would avoid this");
    if (!taken) {
        pass_over();
        return true;
    }
    guards_->accept(engine_.scalars().loss, engine_.scalars().grad_norm);
    // the largest mean loss of a data rank; own_loss is a sum divided by the valid tokens of all data ranks
    loss_max_ = exchange(Exchange::compare_losses, [&] {
        const double own_loss =
            mesh_[axis::pp].all_reduce(mesh_[axis::cp].all_reduce(engine_.scalars().own_loss));
        const double own_mean = batch.valid_tokens > 0
                                    ? own_loss * double(valid_tokens) / double(batch.valid_tokens)
                                    : -std::numeric_limits<double>::infinity();
        return mesh_[axis::dp].all_reduce(own_mean, Reduce::max);
    });
    progress_.sample += global_batch_;
    progress_.tokens_seen += batch.samples.count() * mesh_.size(axis::dp);
    return true;
}

// All ranks call it at the same places of the program, since it is collective.
bool Trainer::must_stop() {
    const ObservedExchange noted(engine_.exec(), Exchange::agree_to_stop);
    return stop_.agreed(watchdog_.slowest_step() + saving_.expected_seconds());
}

// Before each save, and every few seconds.
void Trainer::require_folder() {
    const auto saved = [this] { return what_is_saved(); };
    if (saving_.is_due(progress_.step))
        owner_.require_owned(saved);
    else
        owner_.require_owned_now_and_then(saved);
}

// For a run that has lost its folder. The other run may remove what it finds there.
std::string Trainer::what_is_saved() const {
    const std::optional<int64_t> saved = saving_.last_step();
    if (!saved) return "Nothing of this run is saved";
    const int64_t lost = progress_.step - *saved;
    return fmt::format(
        "Its last checkpoint is {}: copy it elsewhere if you want to keep it, since the other run may "
        "remove it. {} later step{} not saved",
        saving_.checkpoints().folder().path_of(*saved), lost, lost == 1 ? " is" : "s are");
}

void Trainer::end_run() {
    owner_.require_owned([this] { return what_is_saved(); });
    if (first_rank()) log::info("Stopping after step {}: {}", progress_.step, stop_.reason());
    const std::optional<double> left = stop_.seconds_left();
    const double needed = mesh_.world().all_reduce(saving_.expected_seconds(), Reduce::max);
    std::string state;
    if (progress_.step == 0)
        state = "before the first step was complete";
    else
        goodput_->during(&StartTimes::saving, [&] { state = save_in(left, needed); });
    say_goodput("stopped by " + stop_.reason());
    std::string text = fmt::format("Stopped at step {} of {} by {}: {}.", progress_.step,
                                   config_.training.steps, stop_.reason(), state);
    if (first_rank())
        text += " " + saving_.checkpoints().folder().newest_text("The same command resumes from ",
                                                                 "The same command starts from scratch");
    log::info("{}", text);  // now: files that are still being written may delay the end
    log::flush();
    throw StoppedError("");
}

std::string Trainer::save_in(std::optional<double> left, double needed) {
    if (saving_.is_saved(progress_.step)) return "saved";
    if (left && *left < needed) {
        // the asynchronous save that is being written is finished sooner than a new one
        if (saving_.is_under_way() && *left > needed / 2) saving_.finish();
        if (saving_.is_saved(progress_.step)) return "saved";
        return fmt::format("not saved, since the job ends in {:.0f} s and saving takes {:.0f} s", *left,
                           needed);
    }
    saving_.finish();
    if (saving_.is_saved(progress_.step)) return "saved";
    restore_if_bad();
    return saving_.save_now(record())
               ? "saved"
               : "not saved, since checkpoints are disabled (checkpoint.enable = false "
                 "or checkpoint.load_only = true)";
}

namespace {

// "the loss is 7.6246, the gradient norm is not a number"
std::string what_is_not_finite(const StepScalars& scalars) {
    const auto said = [](double value) -> std::string {
        if (std::isnan(value)) return "not a number";
        return std::isinf(value) ? "infinite" : fmt::format("{:.5g}", value);
    };
    return fmt::format("the loss is {}, the gradient norm is {}", said(scalars.loss),
                       said(scalars.grad_norm));
}

}  // namespace

void Trainer::pass_over() {
    const StepScalars& scalars = engine_.scalars();
    const bool finite = std::isfinite(scalars.loss) && std::isfinite(scalars.grad_norm);
    // only some ranks may see a value that is not finite
    if (!guards_->watches_loss() || mesh_.world().all_reduce(int64_t(!finite), Reduce::max) != 0)
        stop_diverged(fmt::format("step {}: {}; the optimizer step was not taken", progress_.step + 1,
                                  what_is_not_finite(scalars)));
    RunPlace next = progress_.place();
    try {
        const std::string event = guards_->pass_over(next, global_batch_, scalars.loss, scalars.grad_norm);
        continue_at(next, event);
    } catch (const NotFiniteError& error) {
        stop_diverged(error.what());
    }
}

bool Trainer::restore_if_bad() {
    RunPlace next = progress_.place();
    try {
        const std::string event =
            guards_->look_after(next, saving_.is_due(progress_.step) || stop_.is_agreed());
        if (!event.empty()) continue_at(next, event);
        return !event.empty();
    } catch (const CollectiveError&) {
        saving_.finish();  // the checkpoint being written is from an earlier step, which was good
        throw;
    }
}

void Trainer::continue_at(const RunPlace& place, const std::string& event) {
    const bool behind = place.step < progress_.step;
    goodput_->take_back(progress_.step - place.step);
    progress_.move_to(place);
    if (behind) reporting_.go_back(past());
    reporting_.write_line(event);
}

void Trainer::stop_diverged(const std::string& reason) {
    saving_.finish();
    say_goodput("the loss or the gradient was not finite");
    const std::string place = saving_.checkpoints().folder().newest_text(
        "The last good checkpoint is ", "There is no checkpoint to go back to");
    throw NotFiniteError(fmt::format(
        "{}. {}. Usual remedies: a lower optimizer.lr, a longer lr_scheduler.warmup_steps, a look "
        "at the data of this step",
        reason, place));
}

void Trainer::report() {
    const bool due = progress_.step == 1 || progress_.step % config_.metrics.log_freq == 0 ||
                     progress_.step == config_.training.steps;
    if (!due) return;
    const StepScalars& scalars = engine_.scalars();
    StepMetrics metrics = progress_.metrics(data_.training().num_windows());
    metrics.loss = scalars.loss;
    metrics.loss_max = loss_max_;
    metrics.grad_norm = scalars.grad_norm;
    metrics.lr = scalars.learning_rate;
    const MoeConfig& experts = engine_.decoder().config().moe;
    if (experts.sequence_balance > 0) metrics.sequence_balance_loss = scalars.balance_loss;
    if (engine_.decoder().depths() > 0) metrics.mtp_loss = scalars.mtp_loss;
    const std::vector<int64_t> loads = engine_.loads();
    metrics.experts = expert_loads(loads, experts.experts, mesh_.shape().ep);
    if (mesh_.shape().ep > 1)
        metrics.extra_rounds = mesh_.world().all_reduce(engine_.extra_rounds(), Reduce::max);
    if (const int64_t twice = engine_.steps_computed_twice(); twice > 0) metrics.steps_computed_twice = twice;
    reporting_.step(std::move(metrics), config_.training.steps - progress_.step);
    if (records_loads(progress_.step, config_.metrics.log_freq, config_.training.steps))
        reporting_.expert_loads(progress_.step, loads);
}

void Trainer::say_goodput(const std::string& end) {
    const std::string goodput =
        goodput_->finish(progress_.step, progress_.is_finished(config_.training.steps), end);
    if (first_rank()) log::info("{}", goodput);
}

void Trainer::report_gpu_memory(const std::string& when) {
    const Device& device = device_.device();
    if (device.is_host()) return;
    const MemoryPlan& plan = engine_.plan();
    const GpuMemoryUse use = gpu_memory_use(mesh_.world(), plan.total() - plan.bytes(term::spare),
                                            device.taken_bytes(), device_.sharing() == 1);
    if (!first_rank() || use.rank < 0) return;
    if (use.exceeds_plan())
        log::warn("{}", use.text(when));
    else
        log::info("{}", use.text(when));
}

void Trainer::report_stragglers(const StepTime& time) {
    if (!stragglers_) return;
    const bool last = progress_.step == config_.training.steps;
    for (const Straggler& straggler : stragglers_->end_step(progress_.step, last, time.seconds, time.data)) {
        log::info("{}", console_line(straggler));
        reporting_.write_line(json_line(straggler));
    }
}

void Trainer::note_saved(const SavedCheckpoint& done) {
    if (stragglers_) stragglers_->add_saving(done.saved.own_seconds);
    if (goodput_) goodput_->ask_for_line();
    reporting_.write_line(json_line(CheckpointMetrics{.step = done.step,
                                                      .at_step = progress_.step,
                                                      .gib = double(done.saved.bytes) / bytes_per_gib,
                                                      .seconds = done.seconds,
                                                      .seconds_waited = done.seconds_waited}));
}

void Trainer::validate() {
    const auto measured = evaluator_->run(engine_, [this] { return !must_stop(); });
    progress_.validation_is_left = !measured;
    if (!measured) return;
    ValidationMetrics m = *measured;
    m.step = progress_.step;
    reporting_.validation(m);
}

TrainRecord Trainer::record() const {
    TrainRecord train = progress_.record();
    train.seed = config_.debug.seed;
    train.deck = deck_text(config_);
    train.version = version();
    train.model = describe_model(model_);
    train.guards = guards_->record();
    return train;
}

}  // namespace coeus
