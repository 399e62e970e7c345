// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/run_owner.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/job/job_end.hpp"

#include <filesystem>

namespace coeus {

namespace {

namespace fs = std::filesystem;

constexpr double most_waiting = 300;  // seconds, for an earlier start of the same job
constexpr double look_every = 5;      // seconds; less than a folder without locks may go untouched

std::vector<fs::path> owned_folders(const Config& config) {
    const fs::path root = config.job.dump_folder;
    std::vector<fs::path> folders = {root.lexically_normal()};
    const bool saves = config.checkpoint.enable && !config.checkpoint.load_only;
    if (const fs::path checkpoints = (root / config.checkpoint.folder / "").lexically_normal().parent_path();
        saves && checkpoints != (folders[0] / "").lexically_normal().parent_path())
        folders.push_back(checkpoints);
    return folders;
}

}  // namespace

RunOwner::RunOwner(const Config& config, const Communicator& world) : world_(world) {
    const std::vector<fs::path> folders = owned_folders(config);
    num_folders_ = folders.size();
    on_first_rank(world, [&] {
        const FolderOwner::Who self = FolderOwner::Who::self();
        id_ = self.id;
        for (const fs::path& folder : folders) owners_.push_back(std::make_unique<FolderOwner>(folder, self));
    });
    id_ = broadcast_text(world, id_);
}

void RunOwner::take(const std::function<void()>& meanwhile) {
    for (size_t i = 0; i < num_folders_; ++i) {
        const Timer timer;
        for (bool taken = false, said = false; !taken;) {
            on_first_rank(world_, [&] {
                FolderOwner& owner = *owners_[i];
                taken = owner.take();
                if (taken || said) return;
                log::info("{} waits for {}", owner.folder().string(), owner.waits_for());
                said = true;
            });
            taken = world_.all_reduce(int64_t(taken), Reduce::max) != 0;
            if (taken) break;
            on_first_rank(world_, [&] {
                if (timer.seconds() > most_waiting)
                    throw StoppedError(fmt::format("{} waited {:.0f} s for {}", owners_[i]->folder().string(),
                                                   timer.seconds(), owners_[i]->waits_for()));
            });
            meanwhile();
            sleep_seconds(1);
        }
    }
    looked_at_ = steady_seconds();
}

void RunOwner::require_owned() const {
    for (const auto& owner : owners_) try {
            owner->require_owned();
        } catch (const SystemError&) {
            tell_job_script(JobNote::lost_folder);
            throw;
        }
}

void RunOwner::require_owned_now_and_then() {
    if (const double now = steady_seconds(); now - looked_at_ > look_every) {
        require_owned();
        looked_at_ = now;
    }
}

CheckpointWriter RunOwner::writer() const {
    return {.id = id_, .require_owned = [this] { require_owned(); }};
}

}  // namespace coeus
