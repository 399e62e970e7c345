// SPDX-License-Identifier: Apache-2.0
// Reporting: what a run says of its steps: lines of the console and of metrics.jsonl, TensorBoard's scalars,
// a page of plots.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/gpu_monitor.hpp"
#include "coeus/report/metrics.hpp"
#include "coeus/report/run_folder.hpp"
#include "coeus/report/tensorboard.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace coeus {

/// Of one rank; rank 0 writes the files, but for TensorBoard's where all ranks have one.
class Reporting {
public:
    /// `device`: this rank's. All outlive it.
    Reporting(const RunFolder& folder, const Communicator& world, const Device& device);

    /// What speeds are computed from, of this rank.
    struct Work {
        double tokens_per_step = 0;  ///< its share, where ranks divide a sample
        double flops_per_token = 0;
        std::optional<double> peak_flops;  ///< FLOP/s; none: not known
    };
    /// Before the first step, with what the run has behind it. Collective. SystemError where a file cannot be
    /// opened. What cannot be written later is said and counted, and ends no run. `require_owned` throws if
    /// the run has lost its folder; rank 0 calls it right before it drops lines.
    void begin(const MetricsFile::Past& past, const Work& work, const std::function<void()>& require_owned);
    /// The run goes back to there: what comes again stands in the files once.
    void go_back(const MetricsFile::Past& past);

    /// A step took so long.
    void add_step(double seconds, double data_seconds) { clock_.add(seconds, data_seconds); }
    /// A step that is logged, without what is known here: speeds since the last one, memory, the GPU.
    void step(StepMetrics m, int64_t steps_left);
    void validation(ValidationMetrics m);
    /// A line of metrics.jsonl alone.
    void write_line(const std::string& json);
    /// The page of plots, once the run is complete. Says so where that fails; nothing is lost then.
    void write_page() const;

    /// Null: none.
    const GpuMonitor* gpu() const { return gpu_ ? &*gpu_ : nullptr; }

private:
    const RunFolder& folder_;
    const Communicator& world_;
    const Device& device_;
    Work work_;
    StepClock clock_;
    std::optional<MetricsFile> metrics_;            ///< of rank 0
    std::unique_ptr<TensorBoardFile> tensorboard_;  ///< of rank 0, or of each rank
    std::optional<GpuMonitor> gpu_;
};

}  // namespace coeus
