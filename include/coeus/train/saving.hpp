// SPDX-License-Identifier: Apache-2.0
// Saving: when a run's checkpoints are written, at once or while training continues, and the weights alone at
// its end.
#pragma once

#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/io/async_checkpoint.hpp"
#include "coeus/report/run_folder.hpp"

#include <functional>
#include <optional>

namespace coeus {

/// Every member that reads or writes files is collective. Errors as those of CheckpointStore.
class Saving {
public:
    /// All outlive it; the engine allocates before anything is loaded or saved.
    Saving(const Config& config, const DecoderConfig& model, const RunFolder& folder, const Mesh& mesh,
           Engine& engine, CheckpointWriter writer);

    const CheckpointStore& checkpoints() const { return checkpoints_; }
    int64_t full_state_bytes() const;
    std::vector<CheckpointTensor> weights() const;
    std::vector<CheckpointTensor> full_state() const;

    /// Before the first step: takes the memory of saving while training continues. `noted` is told of each
    /// checkpoint, on all ranks.
    void begin(std::function<void(const SavedCheckpoint&)> noted);
    /// The weights are about to change.
    void wait_for_copies();
    /// A checkpoint of this step is saved after it.
    bool is_due(int64_t step) const;
    /// What is due behind a step.
    void after_step(const TrainRecord& train);
    /// The state as it is, unless it stands already; returns when it is on the disk. False where the deck
    /// saves nothing.
    bool save_now(const TrainRecord& train);
    /// Waits for what is under way.
    void finish();
    /// Seconds that save_now() takes, as the last save did, or as loading did before the first; 0: not known.
    /// Ranks differ.
    double expected_seconds() const { return (is_under_way() ? 2 : 1) * seconds_of_save_; }
    bool is_under_way() const { return async_ && async_->is_under_way(); }
    /// The checkpoint of this step is on the disk, whole.
    bool is_saved(int64_t step) const { return last_step_ == step; }
    /// A checkpoint was loaded, in so many seconds; `own_step`: its step, where it is one of this run's.
    void note_loaded(std::optional<int64_t> own_step, double seconds) {
        last_step_ = own_step;
        seconds_of_save_ = seconds;
    }

    /// The initial weights alone, from which any number of ranks starts.
    void save_seed(const TrainRecord& train);
    /// For a run at its end that was killed after its last checkpoint, before it had written the model alone.
    void export_if_missing(const TrainRecord& train);

private:
    bool saves() const { return config_.checkpoint.enable && !config_.checkpoint.load_only; }
    void export_model(const TrainRecord& train);
    std::string export_path(int64_t step) const;
    std::string export_hub(int64_t step, Dtype dtype);
    void note(const std::optional<SavedCheckpoint>& done);

    const Config& config_;
    const DecoderConfig& model_;
    const RunFolder& folder_;
    const Communicator& world_;
    Engine& engine_;
    CheckpointStore checkpoints_;
    std::optional<AsyncCheckpoint> async_;  ///< where checkpoints are written while training continues
    std::function<void(const SavedCheckpoint&)> noted_;
    double seconds_of_save_ = 0;
    std::optional<int64_t> last_step_;
};

}  // namespace coeus
