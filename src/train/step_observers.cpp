// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/step_observers.hpp"

#include "coeus/base/log.hpp"
#include "coeus/plan/copy_rate.hpp"

namespace coeus {

StepObservers::StepObservers(const Config::Profiling& options, const RunFolder& folder, Mesh& mesh,
                             Engine& engine)
    : options_(options), folder_(folder), mesh_(mesh), engine_(engine) {
    if (options.kernels) profile_.emplace(Timestamps(engine.exec()));
    if (options.enable_profiling)
        traces_.emplace(options, folder.root() / options.save_traces_folder, mesh, engine);
}

void StepObservers::begin(int64_t step, bool profiled) {
    if (profile_ && profiled) profiling_.emplace(engine_.observe(*profile_));
    if (traces_) traces_->begin(step);
    if (snapshot_due(step)) snapshot_.emplace(engine_, size_t(options_.memory_snapshot_max_entries));
}

void StepObservers::end(int64_t step, double seconds, double data_seconds) {
    if (snapshot_)
        lost_snapshots_.attempt(
            [&] { snapshot_->write(folder_.memory_snapshot_folder(), step, mesh_.world().rank()); });
    snapshot_.reset();
    if (traces_) traces_->end(step);
    if (!profiling_) return;
    profile_->end_step(seconds, data_seconds);
    profiling_.reset();
}

bool StepObservers::snapshot_due(int64_t step) const {
    return options_.enable_memory_snapshot &&
           step % options_.memory_snapshot_freq.value_or(options_.profile_freq) == 0;
}

void StepObservers::report_profile(std::optional<double> peak_flops) {
    if (!profile_) return;
    // all ranks measure at the same time, as they computed at the same time; each logs its own table
    mesh_.world().barrier();
    const CopyRate copy = copy_rate(engine_.exec(), engine_.kernels());
    log::info("Profile of rank {}: {}", mesh_.world().rank(),
              profile_->table(
                  {.flops_per_second = peak_flops.value_or(0), .bytes_per_second = copy.bytes_per_second}));
}

}  // namespace coeus
