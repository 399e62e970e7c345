// SPDX-License-Identifier: Apache-2.0
// Trainer: a run from its deck to its last step.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/config/config.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/guards/guards.hpp"
#include "coeus/job/stop.hpp"
#include "coeus/observe/kernel_profile.hpp"
#include "coeus/observe/start_up.hpp"
#include "coeus/observe/step_traces.hpp"
#include "coeus/observe/stragglers.hpp"
#include "coeus/optim/lr_schedule.hpp"
#include "coeus/report/goodput.hpp"
#include "coeus/report/reporting.hpp"
#include "coeus/report/run_folder.hpp"
#include "coeus/train/device_setup.hpp"
#include "coeus/train/evaluator.hpp"
#include "coeus/train/faults.hpp"
#include "coeus/train/saving.hpp"
#include "coeus/train/training_data.hpp"
#include "coeus/watchdog/watchdog.hpp"

#include <optional>

namespace coeus {

class Trainer {
public:
    /// Sets everything up and loads the newest checkpoint. Throws ConfigError for whatever a user can mend,
    /// before the first step. Counts its phases in `start_up`, which is borrowed as is `watchdog`.
    /// Collective, like every member.
    Trainer(const CommandLine& command_line, const MpiRuntime& mpi, Watchdog& watchdog, StartUp& start_up);
    ~Trainer();
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    /// Trains to training.steps, or with checkpoint.create_seed_checkpoint saves step 0 alone. Throws
    /// NotFiniteError, with no optimizer step taken, where loss or gradient is not finite; StoppedError where
    /// it was asked to end, saved where there was time.
    void run();

private:
    void require_all_fit(int64_t limit, int64_t host_limit) const;
    std::optional<double> measure_peak(int local_size);
    /// Weights, and what else the start has. True where it goes on from a checkpoint in the run's own folder.
    bool load();
    bool in_own_folder(const CheckpointFolder::Loaded& loaded) const;
    /// Goes on where a checkpoint was, but begins the excluded parts anew.
    void resume(const CheckpointFolder::Loaded& loaded, const Words& excluded);
    struct StepTime {
        double seconds, data;  ///< data: of the seconds, waiting for the batch
    };
    /// A step with all that watches it.
    StepTime observed_step(BatchLoader& loader, bool profiled);
    /// False, with nothing changed, where the run is to stop.
    bool train_step(const StepBatch& batch);
    /// The step was refused.
    void pass_over();
    void report();
    void report_stragglers(const StepTime& time);
    void say_goodput();
    void note_saved(const SavedCheckpoint& done);
    void validate();
    bool must_stop();
    [[noreturn]] void end_run();
    /// Says what came of it. `left`: seconds until the job ends, where that is known.
    std::string save_in(std::optional<double> left, double needed);
    void report_profile();
    bool validation_due() const;
    bool snapshot_due() const;
    TrainRecord record() const;
    RunPlace place() const { return {step_, sample_, tokens_seen_}; }
    MetricsFile::Past past() const { return {step_, guards_->events(), validation_is_left_}; }
    /// After a step. True where replicas differ and the run goes on at an earlier place.
    bool restore_if_bad();
    /// Goes on there, after an event.
    void go_on_at(const RunPlace& place, const std::string& event);
    [[noreturn]] void stop_diverged(const std::string& reason);
    bool first_rank() const { return mesh_.world().rank() == 0; }

    StartUp& start_up_;
    Config config_;
    std::vector<std::string> notices_;
    Watchdog& watchdog_;
    RankDevice device_;
    Mesh mesh_;
    std::unique_ptr<Faults> faults_;  ///< of tests
    Stop stop_;
    RunFolder folder_;
    CpuShare cpu_;
    DecoderConfig model_;
    Engine engine_;
    std::optional<Guards> guards_;  ///< when the engine has its memory
    TrainingData data_;
    LrSchedule schedule_;
    Saving saving_;
    Reporting reporting_;
    std::optional<double> peak_flops_;
    std::optional<Evaluator> evaluator_;
    std::optional<GoodputClock> goodput_;
    std::optional<Stragglers> stragglers_;
    std::optional<KernelProfile> profile_;
    std::optional<StepTraces> traces_;
    double loss_max_ = 0;              ///< of the last step, over the data ranks
    int64_t global_batch_ = 0;         ///< sequences of a step, over the data ranks
    int64_t step_ = 0;                 ///< optimizer steps taken
    int64_t sample_ = 0;               ///< number of the next sample of the data stream
    int64_t tokens_seen_ = 0;          ///< over all ranks and restarts
    bool validation_is_left_ = false;  ///< after the last step, cut short by a stop
    // steps taken where they began; other than 0 with checkpoint.exclude_from_loading
    int64_t schedule_begins_ = 0, optimizer_begins_ = 0;
    std::optional<NcclWorld> nccl_;  ///< last, so that it ends before the queues that wait for it
};

}  // namespace coeus
