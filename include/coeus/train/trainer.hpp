// SPDX-License-Identifier: Apache-2.0
// Trainer: a run from its deck to its last step.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "coeus/device/cpu.hpp"
#include "coeus/device/gpu_monitor.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "coeus/optim/lr_schedule.hpp"
#include "coeus/train/config.hpp"
#include "coeus/train/data.hpp"
#include "coeus/train/device_setup.hpp"
#include "coeus/train/engine.hpp"
#include "coeus/train/evaluator.hpp"
#include "coeus/train/kernel_profile.hpp"
#include "coeus/train/metrics.hpp"
#include "coeus/train/run_folder.hpp"
#include "coeus/train/step_traces.hpp"
#include "coeus/train/tensorboard.hpp"

#include <optional>

namespace coeus {

class Trainer {
public:
    /// Sets everything up and loads the newest checkpoint. Throws ConfigError for whatever a user can mend,
    /// before the first step. Collective, like every member.
    Trainer(const CommandLine& command_line, const MpiRuntime& mpi);
    ~Trainer();
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    /// Trains to training.steps, or with checkpoint.create_seed_checkpoint saves step 0 alone. Throws
    /// NotFiniteError, with no optimizer step taken, where loss or gradient is not finite.
    void run();

private:
    void require_all_fit(int64_t limit, int64_t host_limit) const;
    void connect_by_nccl(const NcclLibrary& library, const std::string& host);
    std::optional<double> measure_peak(int local_size);
    /// Weights, and what else the start has. True where it goes on from a checkpoint in the run's own folder.
    bool load();
    /// Goes on where a checkpoint was, but begins the excluded parts anew.
    void resume(const Checkpoint::Loaded& loaded, const Words& excluded);
    void train_step(const StepBatch& batch);
    void report(const StepBatch& batch);
    void save();
    void save_seed();
    std::string export_path() const;
    bool export_is_missing() const;
    void export_model();
    std::string export_hub(const std::vector<CheckpointTensor>& weights, Dtype dtype);
    void report_saved(const std::optional<SavedCheckpoint>& done);
    int64_t full_state_bytes() const;
    std::vector<CheckpointTensor> weights() const;
    std::vector<CheckpointTensor> full_state() const;
    void validate();
    void report_profile();
    void write_page() const;
    bool snapshot_due() const;
    TrainRecord record() const;
    [[noreturn]] void stop_not_finite();
    bool first_rank() const { return mesh_.world().rank() == 0; }

    Config config_;
    std::vector<std::string> notices_;
    RankDevice device_;
    Mesh mesh_;
    RunFolder folder_;
    CpuShare cpu_;
    DecoderConfig model_;
    Engine engine_;
    TrainingData data_;
    LrSchedule schedule_;
    Checkpoint checkpoint_;
    std::optional<AsyncCheckpoint> beside_;  ///< where checkpoints are written while training goes on
    std::optional<double> peak_flops_;
    std::optional<Evaluator> evaluator_;
    std::optional<MetricsFile> metrics_;          ///< of rank 0
    std::optional<TensorBoardFile> tensorboard_;  ///< of rank 0, or of each rank
    std::optional<GpuMonitor> gpu_monitor_;
    StepClock clock_;
    std::optional<KernelProfile> profile_;
    std::optional<StepTraces> traces_;
    double flops_per_token_ = 0;
    double loss_max_ = 0;       ///< of the last step, over the data ranks
    int64_t global_batch_ = 0;  ///< sequences of a step, over the data ranks
    int64_t step_ = 0;          ///< optimizer steps taken
    int64_t sample_ = 0;        ///< number of the next sample of the data stream
    int64_t tokens_seen_ = 0;   ///< over all ranks and restarts
    // steps taken where they began; other than 0 with checkpoint.exclude_from_loading
    int64_t schedule_begins_ = 0, optimizer_begins_ = 0;
    std::optional<Watch> watch_;  ///< where there is NCCL
    std::optional<Watch::Line> steps_by_graph_;
    double slowest_step_ = 0;        ///< seconds
    std::optional<NcclWorld> nccl_;  ///< last, so that it ends before the queues that wait for it
};

}  // namespace coeus
