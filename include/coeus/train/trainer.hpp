// SPDX-License-Identifier: Apache-2.0
// Trainer: a run from its deck to its last step.
#pragma once

#include "coeus/comm/mpi.hpp"
#include "coeus/config/config.hpp"
#include "coeus/data/batch_loader.hpp"
#include "coeus/guards/guards.hpp"
#include "coeus/job/stop.hpp"
#include "coeus/metrics/goodput.hpp"
#include "coeus/metrics/run_folder.hpp"
#include "coeus/observe/stragglers.hpp"
#include "coeus/optim/lr_schedule.hpp"
#include "coeus/report/reporting.hpp"
#include "coeus/session/session.hpp"
#include "coeus/train/faults.hpp"
#include "coeus/train/progress.hpp"
#include "coeus/train/resume.hpp"
#include "coeus/train/run_owner.hpp"
#include "coeus/train/saving.hpp"
#include "coeus/train/step_observers.hpp"
#include "coeus/train/workload.hpp"
#include "coeus/watchdog/watchdog.hpp"

#include <map>
#include <memory>
#include <optional>

namespace coeus {

class Trainer {
public:
    /// Prepares everything and loads the newest checkpoint. Throws ConfigError, before the first step, for
    /// every mistake that a user can correct. Records the phases of the start in `start_up`. `start_up` and
    /// `watchdog` are borrowed. Collective, like every member.
    Trainer(const CommandLine& command_line, const MpiRuntime& mpi, Watchdog& watchdog, StartUp& start_up);
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    /// Trains to training.steps; with checkpoint.create_seed_checkpoint it saves step 0 and returns. Throws
    /// NotFiniteError if the loss or the gradient is not finite; that optimizer step is not taken. Throws
    /// StoppedError if the run was asked to end; its state is saved if there was time.
    void run();

private:
    // the parts of the start, in this order
    /// Logs device, mesh, memory plan and data, one line each, and then the warnings. Only on rank 0.
    void describe_start() const;
    /// Hints on settings of this host that are valid but bad.
    Findings hints() const;
    /// Loads or initialises the weights and the state of the run. True if the run continues from a checkpoint
    /// in its own folder.
    bool load_state();
    void continue_from(const Resume& resume);
    void start_fresh();
    /// Moves the files of an earlier run aside unless this run continues it. Writes the deck if steps are
    /// left.
    void prepare_folder(bool continues);
    void begin_reporting();

    /// The steps that are left.
    void train();

    struct StepTime {
        double seconds, data;  ///< data: the part of the seconds spent waiting for the batch
    };
    /// A training step with profile, traces, memory snapshot and watchdog.
    StepTime observed_step(BatchLoader& loader, bool profiled);
    /// False, with nothing changed, if the run has to stop.
    bool train_step(const StepBatch& batch);
    void log_repetition(const StepOutcome& outcome) const;
    /// After a step that was refused: skips it or rewinds, as the guards decide, or ends the run.
    void pass_over();
    void report();
    /// After the first and the second step: GPU memory against the plan. `when`: "after the first step".
    void report_gpu_memory(const std::string& when);
    void report_stragglers(const StepTime& time);
    /// What this start is, for the report. Only on rank 0.
    std::optional<StartRecord> start_record() const;
    /// `end`: why the start ends.
    void say_goodput(const std::string& end);
    void note_saved(const SavedCheckpoint& done);
    void validate();
    bool must_stop();
    void require_folder();
    std::string what_is_saved() const;
    [[noreturn]] void end_run();
    /// Saves the state if there is time, and returns the outcome in words. `left`: seconds until the job
    /// ends, if known. `needed`: seconds that saving takes.
    std::string save_in(std::optional<double> left, double needed);
    bool validation_due() const;
    TrainRecord record() const;
    MetricsFile::Past past() const { return progress_.past(guards_->events()); }
    /// After a step: compares replicas and takes a snapshot if these are due. True if replicas differ and the
    /// run continues at an earlier place.
    bool restore_if_bad();
    /// Continues at `place` after an event of the guards.
    void continue_at(const RunPlace& place, const std::string& event);
    [[noreturn]] void stop_diverged(const std::string& reason);
    bool first_rank() const { return rank_.is_first(); }
    /// Sequences per step, over all data ranks.
    int64_t global_batch() const;
    int64_t tokens_per_step() const;

    Engine& engine() { return session_.engine(); }
    const Engine& engine() const { return session_.engine(); }
    const Mesh& mesh() const { return rank_.mesh(); }

    StartUp& start_up_;
    Config config_;
    std::vector<std::string> notices_;
    std::map<std::string, std::string> origins_;  // of the deck's values, for print_config
    Watchdog& watchdog_;
    Rank rank_;
    std::unique_ptr<Faults> faults_;  ///< for tests; null without COEUS_FAULT
    Stop stop_;
    RunOwner owner_;
    RunFolder folder_;
    // planned when the folder is this run's, since it reads the checkpoint from which it resumes
    Session session_;
    std::optional<Guards> guards_;  ///< made after the engine has allocated
    std::unique_ptr<Workload> workload_;
    LrSchedule schedule_;
    Saving saving_;
    Reporting reporting_;
    std::optional<double> peak_flops_;
    std::optional<GoodputClock> goodput_;
    std::optional<Stragglers> stragglers_;
    std::optional<StepObservers> observers_;
    Progress progress_;
    double loss_max_ = 0;               ///< largest loss of a data rank in the last step
    Session::Ending ending_{session_};  ///< last: it goes before the members that may wait for other ranks
};

}  // namespace coeus
