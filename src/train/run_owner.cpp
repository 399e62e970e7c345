// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/run_owner.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/job/job_end.hpp"

#include <filesystem>
#include <set>

namespace coeus {

namespace {

namespace fs = std::filesystem;

constexpr double most_waiting = 300;  // seconds, for an earlier start of the same job
constexpr double look_every = 5;      // seconds; less than the patience of FolderOwner

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

RunOwner::RunOwner(const Config& config, const Communicator& world) : world_(world), config_(config) {}

void RunOwner::take(const std::function<void()>& meanwhile) {
    std::set<std::string> said;
    for (const Timer timer; id_.empty();) {
        std::string id;
        on_first_rank(world_, [&] { id = take_folders(said, timer.seconds()); });
        id_ = broadcast_text(world_, id);
        if (!id_.empty()) break;
        meanwhile();
        sleep_seconds(1);
    }
    looked_at_ = steady_seconds();
}

// The run's id; "" while another run still has a folder.
std::string RunOwner::take_folders(std::set<std::string>& said, double waited) {
    if (owners_.empty()) {
        const FolderOwner::Who self = FolderOwner::Who::self();
        for (const fs::path& folder : owned_folders(config_))
            owners_.push_back(std::make_unique<FolderOwner>(folder, self));
    }
    bool owns_all = true;
    for (const auto& owner : owners_) {
        // try the others too: they are waited for at the same time
        if (owner->is_owned() || owner->take()) continue;
        owns_all = false;
        if (waited > most_waiting)
            throw StoppedError(fmt::format("{}: waited {:.0f} s for {}", owner->folder().string(), waited,
                                           owner->waits_for()));
        const std::string waits =
            fmt::format("{}: waiting for {}", owner->folder().string(), owner->waits_for());
        if (said.insert(waits).second) log::info("{}", waits);
    }
    return owns_all ? owners_[0]->self().id : "";
}

void RunOwner::require_owned(const std::function<std::string()>& saved) const {
    for (const auto& owner : owners_) try {
            owner->require_owned(saved);
        } catch (const SystemError&) {
            tell_job_script(JobNote::lost_folder);
            throw;
        }
}

void RunOwner::require_owned_now_and_then(const std::function<std::string()>& saved) {
    if (const double now = steady_seconds(); now - looked_at_ > look_every) {
        require_owned(saved);
        looked_at_ = now;
    }
}

CheckpointWriter RunOwner::writer() const {
    return {.id = id_, .require_owned = [this] { require_owned(); }};
}

}  // namespace coeus
