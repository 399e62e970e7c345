// SPDX-License-Identifier: Apache-2.0
// RunOwner: a run owns its folder and that of its checkpoints for its life; a second start is refused.
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
    /// Nothing is owned yet. Both outlive it.
    RunOwner(const Config& config, const Communicator& world);

    /// The folders exist. Owns them, or throws on all ranks: ConfigError naming the run that has one. It
    /// waits for an earlier start of the same Slurm job, five minutes at most, then StoppedError. `meanwhile`
    /// is called on all ranks once a second. Collective.
    void take(const std::function<void()>& meanwhile);

    /// Rank 0, at least every few seconds of training: SystemError if another run took a folder while this
    /// one was suspended. The job script is told not to queue the job again. Nothing on other ranks.
    void require_owned() const;
    /// The same, looked at only if the last look was some seconds ago, as after each suspension.
    void require_owned_now_and_then();

    /// The run's id, the same on all ranks; "" before take().
    const std::string& id() const { return id_; }
    /// How checkpoints are written by this run.
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
