// SPDX-License-Identifier: Apache-2.0
// What a run reports: one console line and one JSON object per logged step, in torchtitan's words.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/device/gpu_monitor.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace coeus {

inline constexpr double bytes_per_gib = 1024.0 * 1024.0 * 1024.0;

/// One logged step; times and rates are averages since the line before.
struct StepMetrics {
    int64_t step = 0;
    double loss = 0;            ///< mean over the step's valid tokens, all ranks
    double loss_max = 0;        ///< the largest mean of one data rank
    double grad_norm = 0;       ///< before clipping
    double lr = 0;              ///< used in this step
    int64_t tokens_seen = 0;    ///< of the whole run, all ranks
    double epoch = 0;           ///< samples read by then, in windows of all training data
    double tps = 0;             ///< tokens per second and rank
    double tflops = 0;          ///< of one rank
    std::optional<double> mfu;  ///< percent of the peak; none for an unknown device
    double memory_gib = 0;      ///< most that was resident
    double memory_percent = 0;  ///< of the cgroup's or the machine's memory
    double resident_gib = 0;    ///< resident now
    double step_s = 0;
    double data_s = 0;  ///< of step_s, waiting for data
    double eta_s = 0;
    // of this rank's GPU now, where there is one and its driver says so
    std::optional<double> gpu_memory_gib;  ///< in use, of all processes
    std::optional<double> gpu_power_w;
    std::optional<double> gpu_clock_mhz;  ///< of its multiprocessors
    std::optional<double> gpu_temperature_c;
    std::optional<std::string>
        gpu_throttle;  ///< why the clock is low, throttle_text(); "": nothing holds it down

    double data_percent() const { return step_s > 0 ? 100 * data_s / step_s : 0; }
};

struct ValidationMetrics {
    int64_t step = 0;
    double loss = 0;
    int64_t tokens = 0;
    double seconds = 0, tps = 0;
    double memory_gib = 0, memory_percent = 0;
};

struct CheckpointMetrics {
    int64_t step = 0;     ///< that was saved
    int64_t at_step = 0;  ///< at which it stood under its name
    double gib = 0;
    double seconds = 0, seconds_waited = 0;  ///< of the saving; of those, training waited
};

/// Fills in what the GPU says.
void add_gpu_sample(StepMetrics& m, const GpuSample& gpu);

/// "step:  1  loss:  8.05112  grad_norm:  1.2345  memory: ..."; `color` as torchtitan colours it.
std::string console_line(const StepMetrics& m, bool color);
std::string console_line(const ValidationMetrics& m, bool color);
/// One line of metrics.jsonl, full digits.
std::string json_line(const StepMetrics& m);
std::string json_line(const ValidationMetrics& m);
std::string json_line(const CheckpointMetrics& m);

/// Appends to metrics.jsonl. Lines of what comes after the place where the run goes on, written by one that
/// ended past its last checkpoint, are dropped first: everything stands in the file once.
class MetricsFile {
public:
    /// What the run has behind it.
    struct Past {
        int64_t step = 0;
        int64_t events = 0;               ///< of guards, by their numbers
        bool validation_is_left = false;  ///< of that step
    };
    /// Throws SystemError naming the file where it cannot be read or opened. A lack of room is a warning.
    MetricsFile(const std::filesystem::path& file, const Past& past);
    /// The run goes back to there. Warns where that cannot be written; then lines stand in the file twice, of
    /// which the later ones count.
    void go_back(const Past& past);
    void write(const std::string& line) { file_->append(line); }

private:
    std::filesystem::path path_;
    std::optional<TelemetryFile> file_;
};

/// Averages between two logged steps.
class StepClock {
public:
    void add(double step_seconds, double data_seconds) {
        step_s_ += step_seconds;
        data_s_ += data_seconds;
        ++steps_;
    }
    /// Fills step_s, data_s, tps, tflops, mfu and eta_s, and starts the next window.
    void finish(StepMetrics& m, double tokens_per_step, double flops_per_token,
                std::optional<double> peak_flops, int64_t steps_left);

private:
    double step_s_ = 0, data_s_ = 0;
    int64_t steps_ = 0;
};

}  // namespace coeus
