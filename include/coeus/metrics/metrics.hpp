// SPDX-License-Identifier: Apache-2.0
// Metrics of a run: one console line and one JSON object per logged step, with torchtitan's names.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/device/gpu_monitor.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coeus {

inline constexpr double bytes_per_gib = 1024.0 * 1024.0 * 1024.0;

/// How evenly a step has used the experts of a model.
struct ExpertLoads {
    double max = 0;    ///< tokens of the busiest expert of a layer / mean of the layer; of the worst layer
    double min = 0;    ///< the same of the least busy expert
    int64_t idle = 0;  ///< experts without a token, in all layers
    /// Expert parallelism only: rows of the busiest rank of a layer / mean of the ranks; of the worst layer.
    std::optional<double> rank_max;
};
/// From the tokens of each expert, [layers, experts]; none if there are none. `ranks` divide the experts
/// evenly.
std::optional<ExpertLoads> expert_loads(std::span<const int64_t> loads, int64_t experts, int ranks);

/// A part of the loss.
struct LossMetric {
    std::string topic;  ///< may be empty
    std::string name;   ///< ends in "_loss"
    double value = 0;

    /// In metrics.jsonl: "mtp_loss", "moe_sequence_balance_loss".
    std::string key() const { return topic.empty() ? name : topic + '_' + name; }
};
/// Whether a field of metrics.jsonl is a part of `loss`.
bool is_part_of_loss(std::string_view key);

/// One logged step. Times and rates are averages since the previous logged step.
struct StepMetrics {
    int64_t step = 0;
    int64_t steps = 0;          ///< of the whole run; 0: not known
    double loss = 0;            ///< mean over the step's valid tokens, all ranks
    double loss_max = 0;        ///< largest mean loss of one data rank
    double grad_norm = 0;       ///< before clipping
    double lr = 0;              ///< used in this step
    int64_t tokens_seen = 0;    ///< of the whole run, all ranks
    double epoch = 0;           ///< samples read so far / windows of all training data
    double tps = 0;             ///< tokens per second per rank
    double tflops = 0;          ///< of one rank
    std::optional<double> mfu;  ///< percent of the peak; none for an unknown device
    double memory_gib = 0;      ///< peak memory: resident on the host, or of the GPU
    double memory_percent = 0;  ///< of the memory of the device (on the host: of the cgroup or machine)
    double resident_gib = 0;    ///< resident host memory now
    double step_s = 0;          ///< seconds per step
    double data_s = 0;          ///< the part of step_s spent waiting for data
    double eta_s = 0;           ///< seconds until the last step
    std::optional<ExpertLoads> experts;  ///< none for a model without experts
    /// Rounds of experts' rows after the first ones, of the rank with most; none without expert parallelism.
    std::optional<int64_t> extra_rounds;
    std::optional<int64_t> steps_computed_twice;  ///< since the start; see Engine::update(); none if 0
    std::vector<LossMetric> losses;               ///< parts of the loss, as named by the model
    // state of this rank's GPU now; none without a GPU, or if its driver does not report it
    std::optional<double> gpu_memory_gib;  ///< in use by all processes
    std::optional<double> gpu_power_w;
    std::optional<double> gpu_clock_mhz;  ///< of its multiprocessors
    std::optional<double> gpu_temperature_c;
    std::optional<std::string> gpu_throttle;  ///< throttle_text(): why the clock is low; "": it is not

    double data_percent() const { return step_s > 0 ? 100 * data_s / step_s : 0; }
};

/// The loss of one source of the validation data.
struct SourceLoss {
    std::string name;
    double loss = 0;  ///< mean over its labels; not a number if it has none
    int64_t tokens = 0;
};

/// The metrics of a task of validation.tasks, by name: "acc". Not a number if a score of the task is not
/// finite.
struct TaskMetrics {
    std::string task;
    std::vector<std::pair<std::string, double>> values;
};

/// A text that the model has written after a prompt of validation.prompts.
struct SampleText {
    std::string prompt, text;
};

struct ValidationMetrics {
    int64_t step = 0;
    double loss = 0;
    int64_t tokens = 0;
    double seconds = 0, tps = 0;
    double memory_gib = 0, memory_percent = 0;
    std::vector<SourceLoss> sources;  ///< empty unless they are asked for
    std::vector<TaskMetrics> tasks;   ///< on rank 0
    std::vector<SampleText> samples;  ///< on rank 0
};

struct CheckpointMetrics {
    int64_t step = 0;     ///< step of the checkpoint
    int64_t at_step = 0;  ///< step at which the checkpoint was complete
    double gib = 0;
    double seconds = 0, seconds_waited = 0;  ///< seconds of the save; the part for which training waited
};

/// Fills in the members of the GPU.
void add_gpu_sample(StepMetrics& m, const GpuSample& gpu);

/// "step:  1  loss:  8.05112  grad_norm:  1.2345  memory: ..."; with `color` in torchtitan's colours.
std::string console_line(const StepMetrics& m, bool color);
std::string console_line(const ValidationMetrics& m, bool color);
std::string console_line(int64_t step, const TaskMetrics& m, bool color);
std::string console_line(int64_t step, const SampleText& sample, bool color);
/// One line of metrics.jsonl, full digits.
std::string json_line(const StepMetrics& m);
std::string json_line(const ValidationMetrics& m);
std::string json_line(int64_t step, const TaskMetrics& m);
/// One line of samples.jsonl.
std::string json_line(int64_t step, const SampleText& sample);
std::string json_line(const CheckpointMetrics& m);
/// A line of metrics.jsonl, which is a JSON object, with two more fields: `time`, in seconds since 1970, and
/// `run_s`, the seconds of the run. Both have milliseconds.
std::string with_times(std::string line, double time, double run_seconds);

/// Appends to metrics.jsonl, expert_loads.jsonl or samples.jsonl. An earlier start may have trained beyond
/// its last checkpoint. Lines of steps after the place from which the run resumes are therefore dropped
/// first, so that every step is in the file once.
class MetricsFile {
public:
    /// The part of the run that is complete. Later lines are dropped.
    struct Past {
        int64_t step = 0;
        int64_t events = 0;               ///< number of the last event of the guards
        bool validation_is_left = false;  ///< the validation after `step` is not complete
    };
    /// Throws SystemError, with the file's name, if the file cannot be read or opened. A lack of room is a
    /// warning.
    MetricsFile(const std::filesystem::path& file, const Past& past);
    /// The run goes back to `past`: drops later lines. A file that cannot be rewritten is a warning. Steps
    /// may then be in the file twice, and the later lines count.
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
