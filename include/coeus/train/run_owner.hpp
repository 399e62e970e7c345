// SPDX-License-Identifier: Apache-2.0
// RunOwner: gives a run its folder and its checkpoint folder for itself while it runs. A second start in the
// same folder is refused.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/config/config.hpp"
#include "coeus/file/folder_owner.hpp"
#include "coeus/io/checkpoint_folder.hpp"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace coeus {

class RunOwner {
public:
    /// Takes no folder yet. Both arguments outlive it.
    RunOwner(const Config& config, const Communicator& world);

    /// Takes the folders, which exist. ConfigError on all ranks if another run has one of them; the message
    /// names that run. Waits at most five minutes for an earlier start of the same Slurm job, then throws
    /// StoppedError; while it waits, all ranks call `meanwhile` once a second. Collective.
    void take(const std::function<void()>& meanwhile);

    /// On rank 0: SystemError if another run took a folder while this one was suspended; the job script is
    /// then told not to requeue the job. `saved`: a sentence for the message, which says what of this run's
    /// work can be kept. Call it at least every few seconds. Does nothing on other ranks.
    void require_owned(const std::function<std::string()>& saved = {}) const;
    /// The same, but it only checks if the last check was more than 5 seconds ago. After a suspension it was.
    void require_owned_now_and_then(const std::function<std::string()>& saved);

    /// The run's id, the same on all ranks; "" before take().
    const std::string& id() const { return id_; }
    /// How this run writes checkpoints.
    CheckpointWriter writer() const;

private:
    std::string take_folders(std::set<std::string>& said, double waited);

    const Communicator& world_;
    const Config& config_;
    std::string id_;                                    // of this run, on all ranks
    std::vector<std::unique_ptr<FolderOwner>> owners_;  // on rank 0
    double looked_at_ = 0;                              // seconds of the steady clock
};

}  // namespace coeus
