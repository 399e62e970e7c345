// SPDX-License-Identifier: Apache-2.0
// The start of a run: device, mesh, memory plan, data and weights.
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/version.hpp"
#include "coeus/base/wall_time.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/setup/describe_precision.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/setup/start_hints.hpp"
#include "coeus/train/trainer.hpp"
#include "coeus/train/training_data.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace coeus {

namespace {

constexpr const char* before_training = "before the first step; nothing was lost";

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
      origins_(command_line.origins),
      watchdog_(watchdog),
      rank_(config_, mpi, start_up),
      faults_(Faults::from_environment(rank_.world().rank())),
      stop_(rank_.world(), job_end(config_), config_.checkpoint.walltime_margin),
      owner_(config_, rank_.world()),
      folder_(config_, rank_.world(),
              [this] { owner_.take([this] { stop_.end_if_agreed(before_training); }); }),
      session_(config_, rank_, start_up),
      workload_(start_up.phase("data",
                               [this] {
                                   return make_workload(config_, session_.model(), folder_.data_folder(),
                                                        rank_.world(), rank_.cpu().cores);
                               })),
      schedule_(schedule_from_deck(config_, &notices_)),
      saving_(config_, session_.model(), folder_, rank_.mesh(), engine(), owner_.writer()),
      reporting_(folder_, rank_.world(), rank_.device()) {
    watchdog_.set_gpu(rank_.device().bus_id());
    watchdog_.meet_in(folder_.root(), owner_.id());
    if (first_rank()) describe_start();
    stop_.end_if_agreed(before_training);
    session_.require_fits();
    session_.take_memory(watchdog_.nccl());
    peak_flops_ = session_.peak_flops();
    guards_.emplace(config_.guards, engine(), watchdog_.hosts());
    stop_.end_if_agreed(before_training);
    const bool continues = start_up.phase("weights", [&] { return load_state(); });
    guards_->begin(progress_.place());
    prepare_folder(continues);
    if (!config_.checkpoint.create_seed_checkpoint) begin_reporting();  // else there are no steps to report
}

void Trainer::describe_start() const {
    std::vector<std::string> lines = {fmt::format("Job: {}", config_.job.description)};
    const auto add_all = [&](const std::vector<std::string>& more) {
        std::ranges::copy(more, std::back_inserter(lines));
    };
    add_all(notices_);
    if (config_.job.print_config)
        lines.push_back(fmt::format("The effective deck:\n{}", deck_text(config_, origins_)));
    const CpuShare& cpu = rank_.cpu();
    lines.push_back(fmt::format("Coeus {} on {} ({}), {}, {} {} per rank ({}{})", version(), cpu_name(),
                                cpu_vector_level(), MpiRuntime::library_version(), cpu.threads,
                                cpu.threads == 1 ? "thread" : "threads", cpu.reason,
                                cpu.first_core >= 0 ? ", pinned" : ""));
    add_all(session_.device_lines());
    std::vector<std::string> warnings = rank_.choice().warnings();
    std::ranges::copy(rank_.choice().transport().warnings, std::back_inserter(warnings));
    for (const Finding& finding : session_.findings())
        if (finding.topic != Finding::Topic::layers)
            (finding.is_warning() ? warnings : lines).push_back(finding.line());
    lines.push_back(workload_->summary());
    if (const std::string passes = workload_->passes(config_.training.steps * global_batch());
        !passes.empty())
        lines.push_back(fmt::format("{} {} = {}", config_.training.steps,
                                    config_.training.steps == 1 ? "step" : "steps", passes));
    for (const Finding& hint : hints()) lines.push_back(hint.line());
    for (const std::string& line : lines) log::info("{}", line);
    for (const std::string& line : warnings) log::warn("{}", line);
}

Findings Trainer::hints() const {
    StartFacts facts = start_facts(rank_.cpu(), rank_.local_size(), !rank_.device().is_host(), config_);
    facts.gradient_roundings = gradient_roundings(engine());
    std::vector<std::string> hints = start_hints(facts);
    if (const std::string& folder = saving_.checkpoints().folder().path();
        config_.checkpoint.enable && !config_.checkpoint.load_only)
        hints.push_back(striping_advice(file_system_of(folder), folder, saving_.full_state_bytes(),
                                        saving_.checkpoints().num_part_files()));
    std::erase(hints, "");
    Findings found;
    found.add(Finding::Topic::advice, hints, Finding::Severity::hint);
    return found;
}

int64_t Trainer::global_batch() const {
    return engine().options().step_sequences();
}

int64_t Trainer::tokens_per_step() const {
    return global_batch() * workload_->tokens_per_sample();
}

void Trainer::prepare_folder(bool continues) {
    on_first_rank(rank_.world(), [&] {
        // if this run was suspended, another run may have written here since this one read the folder
        owner_.require_owned();
        if (const auto aside = folder_.put_earlier_run_aside(config_, continues && progress_.step > 0))
            log::info("{} had files of an earlier run: its metrics were moved to {}", folder_.root().string(),
                      aside->string());
        // a finished run keeps the deck that it was trained with
        if (!continues || !progress_.is_finished(config_.training.steps)) folder_.write_deck(config_);
    });
}

void Trainer::begin_reporting() {
    if (config_.metrics.straggler_freq > 0 && rank_.world().size() > 1)
        stragglers_.emplace(Stragglers::Options{.every = config_.metrics.straggler_freq,
                                                .percent = config_.metrics.straggler_percent},
                            rank_.mesh(), watchdog_.hosts(), engine().exec(), engine().options().graphs,
                            reporting_.gpu());
    saving_.begin([this](const SavedCheckpoint& done) { note_saved(done); });
    // tokens per rank: all ranks that share a data rank's model and sequences share its tokens
    const double tokens = double(tokens_per_step()) / rank_.world().size();
    reporting_.begin(past(),
                     {.tokens_per_step = tokens,
                      .flops_per_token = session_.model()->flops_per_token(workload_->tokens_per_sample()),
                      // the known peaks are not those of 8-bit products
                      .peak_flops = parameters_in_8_bits(engine()) > 0 ? std::nullopt : peak_flops_,
                      .counted_layers = engine().model().counters().layers,
                      .seconds_before = StartUp::seconds_since_exec(),
                      .writes_samples = !config_.validation.prompts.empty()},
                     [this] { owner_.require_owned(); });
}

std::optional<StartRecord> Trainer::start_record() const {
    if (!first_rank()) return std::nullopt;
    std::vector<std::string> hosts;
    for (const std::string& host : watchdog_.hosts())
        if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
    return StartRecord{.version = version(),
                       .model = session_.model()->name(),
                       .parameters = session_.model()->parameters(),
                       .active_parameters = session_.model()->active_parameters(),
                       .ranks = rank_.world().size(),
                       .mesh = mesh().shape().text(),
                       .machine = rank_.device().is_host() ? cpu_name() : rank_.device().name(),
                       .hosts = std::move(hosts),
                       .data = workload_->sources(),
                       .bytes_per_token = workload_->bytes_per_token(),
                       .validation_bytes_per_token = workload_->validation_bytes_per_token(),
                       .deck = deck_text(config_)};
}

bool Trainer::load_state() {
    const Timer timer;
    if (const std::string& folder = saving_.checkpoints().folder().path();
        config_.checkpoint.create_seed_checkpoint && !list_checkpoints(folder).empty())
        throw ConfigError("{}", seed_checkpoint_error(folder));
    const std::optional<Resume> resume = Resume::load(config_, saving_, engine(), rank_.world());
    std::optional<bool>& shuffle = config_.training.shuffle;
    if (!shuffle) shuffle = (resume ? resume->shuffle() : std::nullopt).value_or(true);
    workload_->set_shuffled(*shuffle);
    if (first_rank())
        for (const std::string& notice : workload_->notices()) log::warn("{}", notice);
    if (resume) {
        continue_from(*resume);
        saving_.note_loaded(resume->saved_step(), timer.seconds());
    } else {
        start_fresh();
    }
    if (engine().options().machine.backend == Backend::cuda)
        config_.kernels.logits_chunk_mib = *engine().options().chunk_bytes >> 20;
    engine().renew_weights();
    return resume && resume->in_own_folder();
}

void Trainer::continue_from(const Resume& resume) {
    resume.require_deck_if_finished();
    if (!resume.in_own_folder())
        on_first_rank(rank_.world(), [&] { workload_->require_encoding_of(initial_weights_path(config_)); });
    progress_ = resume.progress();
    guards_->resume(resume.guards());
    std::vector<std::string> notices;
    if (progress_.schedule_begins != 0)
        schedule_ = schedule_from_deck(config_, &notices, progress_.schedule_begins);
    if (!first_rank()) return;
    for (const std::string& line : resume.warnings(global_batch(), guards_->samples_passed_over()))
        log::warn("{}", line);
    for (const std::string& notice : notices) log::info("{}", notice);
    for (const std::string& line : resume.lines()) log::info("{}", line);
}

void Trainer::start_fresh() {
    if (first_rank() && config_.training.shuffle == false)
        log::info("{}", Finding{Finding::Topic::files, unshuffled_notice, Finding::Severity::notice}.line());
    if (const std::string path = initial_weights_path(config_); !path.empty())
        on_first_rank(rank_.world(), [&] { workload_->require_encoding_of(path); });
    else if (const std::string notice = first_rank() ? unused_weights_notice(config_) : ""; !notice.empty())
        log::warn("{}", notice);
    const std::string source = session_.load_initial_weights();
    if (!first_rank()) return;
    if (source.empty())
        log::info("No checkpoint was found: starting from scratch{}",
                  engine().options().types.offloads_master()
                      ? "; the host draws the initial weights, since it keeps them"
                      : "");
    else
        log::info("Starting from the weights of {}", source);
}

}  // namespace coeus
