// SPDX-License-Identifier: Apache-2.0
// Saving: writes the checkpoints of a run when they are due, synchronously or asynchronously, and exports the
// weights at the end of the run.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "coeus/metrics/run_folder.hpp"

#include <functional>
#include <optional>

namespace coeus {

/// ConfigError if the deck wants a Hugging Face folder of a model that has no such form.
void require_form_of_export(const Config::Checkpoint& options, const ModelConfig& model);

/// Every member that reads or writes files is collective. Its errors are those of CheckpointStore.
class Saving {
public:
    /// All arguments outlive it. Engine::allocate() is called before anything is loaded or saved. ConfigError
    /// as require_form_of_export().
    Saving(const Config& config, const ModelConfig& model, const RunFolder& folder, const Mesh& mesh,
           Engine& engine, CheckpointWriter writer);

    const CheckpointStore& checkpoints() const { return checkpoints_; }
    int64_t full_state_bytes() const;
    std::vector<CheckpointTensor> weights() const;
    std::vector<CheckpointTensor> full_state() const;

    /// Before the first step: allocates the buffers of asynchronous checkpoints, and checks on rank 0 that
    /// there is room for checkpoints. `noted` is called for each saved checkpoint, on all ranks. SystemError
    /// if there is no room.
    void begin(std::function<void(const SavedCheckpoint&)> noted);
    /// Call it before the weights change: an asynchronous checkpoint may still be copying them.
    void wait_for_copies();
    /// True if a checkpoint is saved after this step.
    bool is_due(int64_t step) const;
    /// Saves the checkpoint that is due after a step, if there is one.
    void after_step(const TrainRecord& train);
    /// Saves the present state, unless it is saved already; returns when the checkpoint is on disk. False if
    /// the deck disables checkpoints.
    bool save_now(const TrainRecord& train);
    /// Waits for the checkpoint that is being written.
    void finish();
    /// Seconds that save_now() is expected to take: as the last save, or before the first save as loading; 0:
    /// not known. It differs between ranks.
    double expected_seconds() const { return (is_under_way() ? 2 : 1) * seconds_of_save_; }
    bool is_under_way() const { return async_ && async_->is_under_way(); }
    /// The step of this run's last complete checkpoint; none if it has not loaded or saved one.
    std::optional<int64_t> last_step() const { return last_step_; }
    /// True if the checkpoint of this step is complete and on disk.
    bool is_saved(int64_t step) const { return last_step_ == step; }
    /// Call it after loading a checkpoint, which took `seconds`. `own_step`: its step if it is one of this
    /// run's.
    void note_loaded(std::optional<int64_t> own_step, double seconds) {
        last_step_ = own_step;
        seconds_of_save_ = seconds;
    }

    /// Saves the initial weights, from which any number of ranks can start.
    void save_seed(const TrainRecord& train);
    /// Exports the weights if they are due and missing: the run was killed between its last checkpoint and
    /// the export.
    void export_if_missing(const TrainRecord& train);
    /// Call it at the end of the run. ConfigError if a Hugging Face folder was due but cannot hold the
    /// balancing biases of the experts; the checkpoint is saved.
    void require_exported() const;

private:
    bool saves() const { return config_.checkpoint.enable && !config_.checkpoint.load_only; }
    void export_model(const TrainRecord& train);
    std::string export_path(int64_t step) const;
    std::string export_hub(int64_t step, Dtype dtype);
    bool loses_biases() const;
    void note(const std::optional<SavedCheckpoint>& done);

    const Config& config_;
    const ModelConfig& model_;
    const RunFolder& folder_;
    const Communicator& world_;
    Engine& engine_;
    CheckpointStore checkpoints_;
    std::optional<AsyncCheckpoint> async_;  ///< if the deck asks for asynchronous checkpoints
    std::function<void(const SavedCheckpoint&)> noted_;
    double seconds_of_save_ = 0;
    std::optional<int64_t> last_step_;
    std::string not_exported_;  ///< why there is no Hugging Face folder; empty: there is one, or none is due
};

}  // namespace coeus
