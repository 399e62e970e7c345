// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/step_traces.hpp"

#include "coeus/base/log.hpp"

#include <filesystem>
#include <string>
#include <utility>

namespace coeus {

StepTraces::StepTraces(const Config::Profiling& options, std::filesystem::path folder, Mesh& mesh,
                       Engine& engine)
    : options_(options),
      folder_(std::move(folder)),
      mesh_(mesh),
      engine_(engine),
      tracer_(mesh.world().rank(), Tracer::room, Timestamps(engine.exec())),
      losses_("trace", "in " + folder_.string()) {}

// A cycle of steps: first idle, then warm-up, then traced.
void StepTraces::begin(int64_t step) {
    const int64_t traced_from = options_.profile_freq - options_.profiler_active;
    const int64_t place = place_in_cycle(step);
    if (options_.profiler_active == 0 || place < traced_from - options_.profiler_warmup) return;
    if (place <= traced_from) tracer_.clear();
    observation_ = engine_.observe(tracer_);
    engine_.observe_pipeline(&tracer_, &tracer_);
    mesh_.observe(&tracer_);
}

void StepTraces::end(int64_t step) {
    if (!observation_) return;
    observation_.end();
    engine_.observe_pipeline(nullptr, nullptr);
    mesh_.observe(nullptr);
    if (place_in_cycle(step) + 1 == options_.profile_freq) {
        losses_.attempt([&] { write(step); });
        tracer_.clear();
    }
}

void StepTraces::write(int64_t step) const {
    const std::filesystem::path folder = folder_ / fmt::format("iteration_{}", step);
    std::filesystem::create_directories(folder);
    const int rank = mesh_.world().rank();
    tracer_.write(folder / fmt::format("rank{}_trace.json", rank));
    const std::string overlap = tracer_.overlap();
    write_whole_file(folder / fmt::format("rank{}_overlap.txt", rank), overlap + '\n');
    log::info("Trace of step {} in {} (open it at ui.perfetto.dev); communication of rank {}:\n{}", step,
              folder.string(), rank, overlap);
}

}  // namespace coeus
