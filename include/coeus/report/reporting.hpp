// SPDX-License-Identifier: Apache-2.0
// Reporting: writes the metrics of a run's steps to the log, metrics.jsonl and TensorBoard, the loads of its
// experts to expert_loads.jsonl, and at the end a page of plots.
#pragma once

#include "coeus/comm/mesh.hpp"
#include "coeus/config/config.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/gpu_monitor.hpp"
#include "coeus/metrics/goodput.hpp"
#include "coeus/metrics/metrics.hpp"
#include "coeus/metrics/run_folder.hpp"
#include "coeus/metrics/tensorboard.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace coeus {

/// One object per rank. Rank 0 writes the files; TensorBoard files may be written by all ranks.
class Reporting {
public:
    /// `device`: this rank's device. All arguments outlive it.
    Reporting(const RunFolder& folder, const Communicator& world, const Device& device);

    /// The work of this rank, from which rates are computed, and what its model counts.
    struct Work {
        double tokens_per_step = 0;  ///< this rank's share if ranks divide a sample
        double flops_per_token = 0;
        std::optional<double> peak_flops;          ///< FLOP/s; none: not known
        std::vector<int64_t> counted_layers = {};  ///< Counters::layers; none: no counts are recorded
        double seconds_before = 0;                 ///< since this start of the run began
        bool writes_samples = false;               ///< validations write texts
    };
    /// Call it before the first step. `past`: the part of the run that is complete. SystemError if a file
    /// cannot be opened. Lines that cannot be written later are counted and reported, and do not end the run.
    /// `require_owned` throws if the run has lost its folder; rank 0 calls it right before it drops lines.
    /// Collective.
    void begin(const MetricsFile::Past& past, const Work& work, const std::function<void()>& require_owned);
    /// The run goes back to `past`: steps that are repeated are in the files only once.
    void go_back(const MetricsFile::Past& past);

    /// Adds the time of a step.
    void add_step(double seconds, double data_seconds) { clock_.add(seconds, data_seconds); }
    /// Logs a step. Fills in rates since the previous logged step, memory, and the state of the GPU.
    void step(StepMetrics m, int64_t steps_left);
    /// Logs a validation, and writes its texts to samples.jsonl.
    void validation(ValidationMetrics m);
    /// Records the counters of a step in expert_loads.jsonl: [counted layers, choices].
    void counts(int64_t step, std::span<const int64_t> counts);
    /// Writes a line to metrics.jsonl only, with the time.
    void write_line(const std::string& json);
    /// Writes the page of plots when the run is complete. A failure is a warning; no data is lost then.
    void write_page() const;

    /// Null if there is no GPU, or its driver does not report its state.
    const GpuMonitor* gpu() const { return gpu_ ? &*gpu_ : nullptr; }

private:
    /// Only on rank 0.
    std::string with_times_now(const std::string& json) const;

    const RunFolder& folder_;
    const Communicator& world_;
    const Device& device_;
    Work work_;
    StepClock clock_;
    std::optional<MetricsFile> metrics_;            ///< only on rank 0
    std::optional<RunClock> run_clock_;             ///< only on rank 0
    std::optional<MetricsFile> expert_loads_;       ///< only on rank 0, if there are counted layers
    std::optional<MetricsFile> samples_;            ///< only on rank 0, if validations write texts
    std::unique_ptr<TensorBoardFile> tensorboard_;  ///< on rank 0 or on each rank
    std::optional<GpuMonitor> gpu_;
};

}  // namespace coeus
