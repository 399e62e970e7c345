// SPDX-License-Identifier: Apache-2.0
// StepObservers: what [profiling] asks to observe in the steps of a run: the profile of the kernels, traces,
// and memory snapshots.
#pragma once

#include "coeus/base/telemetry_file.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/metrics/run_folder.hpp"
#include "coeus/observe/kernel_profile.hpp"
#include "coeus/observe/memory_snapshot.hpp"
#include "coeus/observe/step_traces.hpp"

#include <cstdint>
#include <optional>

namespace coeus {

class StepObservers {
public:
    /// All but `options` are borrowed.
    StepObservers(const Config::Profiling& options, const RunFolder& folder, Mesh& mesh, Engine& engine);

    /// Call these around each step; steps are counted from 1. `profiled`: the step counts in the profile.
    void begin(int64_t step, bool profiled);
    /// The step took `seconds`, of which it waited `data_seconds` for data. Writes the step's files.
    void end(int64_t step, double seconds, double data_seconds);
    /// Logs the table of the profile, if there is one. `peak_flops`: FLOP/s of this rank, if known.
    /// Collective.
    void report_profile(std::optional<double> peak_flops);

private:
    bool snapshot_due(int64_t step) const;

    Config::Profiling options_;
    const RunFolder& folder_;
    Mesh& mesh_;
    Engine& engine_;
    std::optional<KernelProfile> profile_;
    std::optional<StepTraces> traces_;
    std::optional<MemorySnapshot> snapshot_;  ///< of the present step
    std::optional<Observation> profiling_;    ///< of the present step; it ends before the profile
    Losses lost_snapshots_{"memory snapshot", "of the steps"};
};

}  // namespace coeus
