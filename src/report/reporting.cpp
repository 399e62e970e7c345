// SPDX-License-Identifier: Apache-2.0
#include "coeus/report/reporting.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/log.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/metrics/load_history.hpp"
#include "coeus/report/report.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

namespace coeus {

namespace {

template <class Metrics>
void add_memory(Metrics& m, const Device& device, int64_t resident) {
    // Linux counts resident pages per core and sums the counts only from time to time, so its peak may be too
    // low
    const int64_t peak = device.is_host() ? std::max(device.peak_bytes(), resident) : device.peak_bytes();
    m.memory_gib = double(peak) / bytes_per_gib;
    m.memory_percent = 100 * double(peak) / double(device.memory_bytes());
}

}  // namespace

Reporting::Reporting(const RunFolder& folder, const Communicator& world, const Device& device)
    : folder_(folder), world_(world), device_(device) {
    if (!device.is_host()) gpu_ = GpuMonitor::of_bus_id(device.bus_id());
}

void Reporting::begin(const MetricsFile::Past& past, const Work& work,
                      const std::function<void()>& require_owned) {
    work_ = work;
    on_first_rank(world_, [&] {
        require_owned();
        metrics_.emplace(folder_.metrics_file(), past);
        run_clock_.emplace(folder_.goodput_file(), work_.seconds_before);
        if (!work.counted_layers.empty()) expert_loads_.emplace(folder_.expert_loads_file(), past);
        if (work.writes_samples) samples_.emplace(folder_.samples_file(), past);
    });
    together(world_, [&] {
        if (const auto& folder = folder_.tensorboard_folder())
            tensorboard_ = std::make_unique<TensorBoardFile>(*folder, past.step);
    });
}

void Reporting::go_back(const MetricsFile::Past& past) {
    if (metrics_) metrics_->go_back(past);
    if (expert_loads_) expert_loads_->go_back(past);
    if (samples_) samples_->go_back(past);
    if (!tensorboard_) return;
    try {
        auto next = std::make_unique<TensorBoardFile>(*folder_.tensorboard_folder(), past.step);
        tensorboard_ = std::move(next);
    } catch (const std::exception& failure) {
        log::warn("{}. Training continues, and writes its events to {}", failure.what(),
                  tensorboard_->path().string());
    }
}

void Reporting::step(StepMetrics m, int64_t steps_left) {
    const int64_t resident = resident_bytes();
    add_memory(m, device_, resident);
    m.resident_gib = double(resident) / bytes_per_gib;
    if (gpu_) add_gpu_sample(m, gpu_->sample());
    m.steps = m.step + steps_left;
    clock_.finish(m, work_.tokens_per_step, work_.flops_per_token, work_.peak_flops, steps_left);
    log::write_colored(log::Level::info, console_line(m, log::colored()));
    write_line(json_line(m));
    if (tensorboard_) tensorboard_->write(m.step, tensorboard_scalars(m));
}

void Reporting::validation(ValidationMetrics m) {
    add_memory(m, device_, resident_bytes());
    log::write_colored(log::Level::info, console_line(m, log::colored()));
    write_line(json_line(m));
    for (const TaskMetrics& task : m.tasks) {
        log::write_colored(log::Level::info, console_line(m.step, task, log::colored()));
        write_line(json_line(m.step, task));
    }
    for (const SampleText& sample : m.samples) {
        log::write_colored(log::Level::info, console_line(m.step, sample, log::colored()));
        if (samples_) samples_->write(with_times_now(json_line(m.step, sample)));
    }
    if (tensorboard_) tensorboard_->write(m.step, tensorboard_scalars(m));
}

void Reporting::counts(int64_t step, std::span<const int64_t> counts) {
    if (expert_loads_) expert_loads_->write(load_line(step, work_.counted_layers, counts));
}

void Reporting::write_line(const std::string& json) {
    if (metrics_) metrics_->write(with_times_now(json));
}

std::string Reporting::with_times_now(const std::string& json) const {
    return with_times(json, seconds_since_1970(), run_clock_->seconds());
}

void Reporting::write_page() const {
    if (world_.rank() == 0 && write_page_of(folder_.root()))
        log::info("Plots of this run: {}", folder_.report_file().string());
}

}  // namespace coeus
