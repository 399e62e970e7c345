// SPDX-License-Identifier: Apache-2.0
// Resume: the checkpoint from which a run continues, what is restored from it, and what changed since.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/train/progress.hpp"
#include "coeus/train/saving.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// Why a run with checkpoint.create_seed_checkpoint does not start in this folder, which has checkpoints.
std::string seed_checkpoint_error(const std::string& folder);

class Resume {
public:
    /// Loads weights and moments into the engine: from the newest checkpoint of the run's own folder (or that
    /// of checkpoint.load_step), else from the file of checkpoint.initial_load_path if the deck wants all of
    /// it. Parts that checkpoint.exclude_from_loading names are reset. Returns nothing if neither exists.
    /// ConfigError: the checkpoint was made with another debug.seed, initial_load_path is a folder, and the
    /// errors of CheckpointStore. `config` outlives it. Collective.
    static std::optional<Resume> load(const Config& config, const Saving& saving, Engine& engine,
                                      const Communicator& world);

    /// ConfigError if a run on this host could not resume from the checkpoint that it would choose, as far as
    /// its description says. Loads nothing.
    static void require_possible(const Config& config, const ModelConfig& model);
    /// Why the checkpoint of checkpoint.load_step is not here; "" if it is, or if the deck does not ask for
    /// one.
    static std::string missing_step(const Config& config);

    /// Whether the checkpoint's run permuted its windows; none if the data begins again.
    std::optional<bool> shuffle() const;
    /// Where the run continues.
    const Progress& progress() const { return progress_; }
    /// What the guards' decisions need: Guards::record() of the run that wrote the checkpoint.
    const std::string& guards() const { return checkpoint_.train.guards; }
    /// True if the checkpoint is in the run's own folder: the files there are then the history of this run.
    bool in_own_folder() const { return in_own_folder_; }
    /// The step whose state is already saved in the run's own folder; none if the loaded state differs from
    /// it.
    std::optional<int64_t> saved_step() const;

    /// Differences from the run that wrote the checkpoint, one line each. `global_batch`: sequences per step;
    /// `passed_over`: samples that the guards skipped.
    std::vector<std::string> warnings(int64_t global_batch, int64_t passed_over) const;
    /// ConfigError if the run is finished and the deck differs in an option that changes its numbers.
    void require_deck_if_finished() const;
    /// What is continued and what was reset, one line each.
    std::vector<std::string> lines() const;

private:
    /// The checkpoint as it was read, without the parts in `excluded`.
    Resume(const Config& config, CheckpointStore::Loaded checkpoint, Words excluded, bool in_own_folder);
    void require_same_seed(int64_t seed) const;

    const Config* config_;
    CheckpointStore::Loaded checkpoint_;
    Words excluded_;  ///< parts of this checkpoint that were reset
    bool in_own_folder_;
    Progress progress_;
};

}  // namespace coeus
