// SPDX-License-Identifier: Apache-2.0
// The steps of a run, with logging, validation, checkpoints and the end of the run.
#include "coeus/train/trainer.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/device/named_range.hpp"
#include "coeus/metrics/load_history.hpp"
#include "coeus/session/gpu_memory_use.hpp"

#include <limits>
#include <utility>

namespace coeus {

namespace {

constexpr int64_t profile_warmup = 2;  // steps that a profile leaves out, unless there are no others
constexpr int64_t profile_steps = 4;   // the last ones, so that a profile does not slow the others

}  // namespace

void Trainer::run() {
    if (config_.checkpoint.create_seed_checkpoint) return saving_.save_seed(record());
    if (progress_.is_finished(config_.training.steps)) {
        saving_.export_if_missing(record());
        if (first_rank())
            log::info(
                "This run is already at step {} of training.steps = {}: nothing to do. Increase "
                "training.steps to continue",
                progress_.step, config_.training.steps);
    } else {
        train();
        say_goodput("complete");
        if (first_rank()) log::info("Training completed at step {}", progress_.step);
        reporting_.write_page();
        observers_->report_profile(peak_flops_);
    }
    saving_.require_exported();
}

void Trainer::train() {
    const int64_t steps = config_.training.steps;
    std::optional<BatchLoader> loader;
    const auto read_on = [&] {
        loader.emplace(workload_->reader(), BatchLoader::Options{.global_batch = global_batch(),
                                                                 .rank = mesh().rank(axis::dp),
                                                                 .ranks = mesh().size(axis::dp),
                                                                 .first_sample = progress_.sample});
    };
    read_on();
    goodput_.emplace(first_rank() ? folder_.goodput_file() : "", start_up_.end(), progress_.step,
                     start_record());
    if (first_rank()) {
        log::info("{}", start_up_.text());
        log::info("Training starts at step {} of {}", progress_.step + 1, steps);
    }
    observers_.emplace(config_.profiling, folder_, rank_.mesh(), engine());
    if (progress_.validation_is_left) {
        goodput_->during(&StartTimes::validation, [&] { validate(); });
        if (progress_.validation_is_left) end_run();
        saving_.export_if_missing(record());
    }
    for (int64_t done = 0; progress_.step < steps; ++done) {
        const int64_t left = steps - progress_.step;
        const StepTime time =
            observed_step(*loader, left <= 1 || (left <= profile_steps && done >= profile_warmup));
        if (engine().scalars().refusals != 0) {  // the optimizer step was not taken
            goodput_->take_back(1);
            continue;
        }
        ++progress_.step;
        require_folder();
        report();
        report_stragglers(time);
        if (done == 0) report_gpu_memory("after the first step");
        if (done == 1 && engine().options().graphs) report_gpu_memory("after the first graphs");
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
}

Trainer::StepTime Trainer::observed_step(BatchLoader& loader, bool profiled) {
    const int64_t step = progress_.step + 1;
    const Observation waiting = stragglers_ ? stragglers_->observe(step) : Observation();
    observers_->begin(step, profiled);
    watchdog_.begin_step(step);
    const Timer timer;
    if (faults_) faults_->at_step(step, engine().model().parameters(), engine().exec());
    const std::optional<StepBatch> batch = loader.next();
    if (must_stop() || !train_step(*batch)) end_run();
    const StepTime time = {timer.seconds(), batch->seconds_waited};
    watchdog_.end_step(time.seconds);
    observers_->end(step, time.seconds, time.data);
    reporting_.add_step(time.seconds, time.data);
    goodput_->add_step(time.seconds, time.data);
    return time;
}

bool Trainer::validation_due() const {
    return workload_->validates() && (progress_.step == 1 || progress_.step % config_.validation.freq == 0);
}

bool Trainer::train_step(const StepBatch& batch) {
    const NamedRange range("step {}", progress_.step + 1);
    const auto exchange = [&](Exchange kind, auto call) {
        const ObservedExchange noted(engine().exec(), kind);
        return call();
    };
    const int64_t counted =
        exchange(Exchange::count_labels, [&] { return mesh()[axis::dp].all_reduce(batch.counted); });
    if (counted == 0)
        throw workload_->nothing_counts(progress_.step + 1, batch.first_sample,
                                        batch.first_sample + global_batch() - 1);
    const int64_t sequences = engine().options().training.sequences;
    std::optional<Watchdog::Graphs> given(std::in_place, watchdog_, engine().gives_graphs());
    const bool whole = engine().compute_gradients(
        progress_.next_optimizer_step(), config_.optimizer.lr * schedule_.factor(progress_.schedule_step()),
        counted, [&](int64_t i) { return batch.samples.slice(i * sequences, sequences); }, guards_->limits(),
        [this] { return !must_stop(); });
    if (!whole) return false;
    saving_.wait_for_copies();
    const StepOutcome outcome = engine().update();
    given.reset();
    if (first_rank()) log_repetition(outcome);
    if (!outcome.taken) {
        pass_over();
        return true;
    }
    guards_->accept(engine().scalars().loss, engine().scalars().grad_norm);
    // the largest mean loss of a data rank; own_loss is a sum divided by the valid tokens of all data ranks
    loss_max_ = exchange(Exchange::compare_losses, [&] {
        const double own_loss =
            mesh()[axis::pp].all_reduce(mesh()[axis::cp].all_reduce(engine().scalars().own_loss));
        const double own_mean = batch.counted > 0 ? own_loss * double(counted) / double(batch.counted)
                                                  : -std::numeric_limits<double>::infinity();
        return mesh()[axis::dp].all_reduce(own_mean, Reduce::max);
    });
    progress_.sample += global_batch();
    progress_.tokens_seen += tokens_per_step();
    return true;
}

void Trainer::log_repetition(const StepOutcome& outcome) const {
    if (outcome.computed_twice)
        log::info(
            "Step {} was computed twice, the second time not as a CUDA graph: more rows went to the experts "
            "of a rank, or from one rank to another, than model.non_blocking_capacity_factor = {} has room "
            "for ({} such steps since the start)",
            progress_.step + 1, config_.model.non_blocking_capacity_factor, engine().steps_computed_twice());
    if (outcome.gave_up_blocks)
        log::warn(
            "Three of ten steps were computed twice. From now on, steps do not run as CUDA graphs; a larger "
            "model.non_blocking_capacity_factor would avoid this");
}

// All ranks call it at the same places of the program, since it is collective.
bool Trainer::must_stop() {
    const ObservedExchange noted(engine().exec(), Exchange::agree_to_stop);
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
    const double needed = mesh().world().all_reduce(saving_.expected_seconds(), Reduce::max);
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

void Trainer::pass_over() {
    const StepScalars& scalars = engine().scalars();
    RunPlace next = progress_.place();
    try {
        const std::string event = guards_->pass_over(next, global_batch(), scalars.loss, scalars.grad_norm);
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
    const StepScalars& scalars = engine().scalars();
    StepMetrics metrics = progress_.metrics(workload_->samples_per_epoch());
    metrics.loss = scalars.loss;
    metrics.loss_max = loss_max_;
    metrics.grad_norm = scalars.grad_norm;
    metrics.lr = scalars.learning_rate;
    for (const PartOfLoss& part : engine().model().losses())
        metrics.losses.push_back({part.topic, part.name, scalars.losses[part.number]});
    const std::vector<int64_t> counts = engine().counts();
    if (const Counters counters = engine().model().counters(); counters.choices == Counters::Choices::experts)
        metrics.experts = expert_loads(counts, counters.columns, mesh().shape().ep);
    if (mesh().shape().ep > 1)
        metrics.extra_rounds = mesh().world().all_reduce(engine().extra_rounds(), Reduce::max);
    if (const int64_t twice = engine().steps_computed_twice(); twice > 0)
        metrics.steps_computed_twice = twice;
    reporting_.step(std::move(metrics), config_.training.steps - progress_.step);
    if (records_loads(progress_.step, config_.metrics.log_freq, config_.training.steps))
        reporting_.counts(progress_.step, counts);
}

void Trainer::say_goodput(const std::string& end) {
    const std::string goodput =
        goodput_->finish(progress_.step, progress_.is_finished(config_.training.steps), end);
    if (first_rank()) log::info("{}", goodput);
}

void Trainer::report_gpu_memory(const std::string& when) {
    const Device& device = rank_.device();
    if (device.is_host()) return;
    const MemoryPlan& plan = engine().plan();
    const GpuMemoryUse use = gpu_memory_use(mesh().world(), plan.total() - plan.bytes(term::spare),
                                            device.taken_bytes(), rank_.choice().sharing() == 1);
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
    const auto measured = workload_->validate(engine(), progress_.step, [this] { return !must_stop(); });
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
    train.model = session_.model()->description();
    train.guards = guards_->record();
    return train;
}

}  // namespace coeus
