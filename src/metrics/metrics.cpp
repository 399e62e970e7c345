// SPDX-License-Identifier: Apache-2.0
#include "coeus/metrics/metrics.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace coeus {

namespace {

enum class Color { red = 31, green = 32, yellow = 33, blue = 34, magenta = 35, cyan = 36 };

std::string painted(const std::string& text, Color color, bool on) {
    return on ? fmt::format("\033[{}m{}\033[0m", int(color), text) : text;
}

std::string memory_text(double gib, double share) {
    return fmt::format("memory: {:5.2f}GiB({:.2f}%)", gib, share);
}

// "30.00GiB 650W 1755MHz 61C power cap": the values that are known.
std::string gpu_text(const StepMetrics& m) {
    std::vector<std::string> parts;
    if (m.gpu_memory_gib) parts.push_back(fmt::format("{:.2f}GiB", *m.gpu_memory_gib));
    if (m.gpu_power_w) parts.push_back(fmt::format("{:.0f}W", *m.gpu_power_w));
    if (m.gpu_clock_mhz) parts.push_back(fmt::format("{:.0f}MHz", *m.gpu_clock_mhz));
    if (m.gpu_temperature_c) parts.push_back(fmt::format("{:.0f}C", *m.gpu_temperature_c));
    if (m.gpu_throttle && !m.gpu_throttle->empty()) parts.push_back(*m.gpu_throttle);
    return join(parts, " ");
}

// "mtp loss" for "mtp_loss".
std::string words_of(std::string name) {
    std::ranges::replace(name, '_', ' ');
    return name;
}

bool is_past(const std::string& text, const MetricsFile::Past& past) {
    try {
        const JsonDocument document = JsonDocument::parse(text, "metrics.jsonl");
        const JsonView line = document.root();
        // events count by their number: samples stay skipped after the run has gone back to an earlier step
        if (line.contains("event")) return line.integer("event_number") <= past.events;
        const bool validation =
            line.contains("validation_loss") || line.contains("task") || line.contains("prompt");
        if (past.validation_is_left && validation && line.integer("step") == past.step) return false;
        return line.integer("step") <= past.step;
    } catch (const ConfigError&) {
        return false;  // an incomplete line: the run was killed
    }
}

// Writes the lines that are past to a new file. The old file stays until the new one is complete.
void drop_what_comes_again(const std::filesystem::path& file, const MetricsFile::Past& past) {
    const auto require_read = [&](bool holds, const std::string& why, int code = 0) {
        if (!holds)
            fail_at_path(
                fmt::format("{} cannot be read: {}; it was not changed. Make it readable, or move it away",
                            file.string(), why),
                code);
    };
    std::error_code failed;
    std::istringstream old(text_patiently(file, failed));
    if (failed == std::errc::no_such_file_or_directory) return;
    require_read(!failed, failed.message(), failed.value());
    std::string kept;
    for (std::string line; std::getline(old, line);)
        if (is_past(line, past)) kept += line + '\n';
    if (kept == old.str()) return;
    try {
        write_whole_file(file, kept);
    } catch (const SystemError& error) {
        log::warn("{}. Lines after step {} stay in {}; of two lines for a step the later one counts",
                  error.what(), past.step, file.string());
    }
}

}  // namespace

void add_gpu_sample(StepMetrics& m, const GpuSample& gpu) {
    if (gpu.memory_used) m.gpu_memory_gib = double(*gpu.memory_used) / bytes_per_gib;
    m.gpu_power_w = gpu.power;
    m.gpu_clock_mhz = gpu.sm_clock;
    m.gpu_temperature_c = gpu.temperature;
    if (gpu.throttle_reasons) m.gpu_throttle = throttle_text(*gpu.throttle_reasons);
}

std::optional<ExpertLoads> expert_loads(std::span<const int64_t> loads, int64_t experts, int ranks) {
    if (loads.empty()) return std::nullopt;
    require(experts > 0 && int64_t(loads.size()) % experts == 0 && experts % ranks == 0,
            "ranks divide the experts of a layer evenly, and all layers have as many");
    ExpertLoads result = {.max = 0, .min = std::numeric_limits<double>::infinity()};
    for (size_t first = 0; first < loads.size(); first += size_t(experts)) {
        const std::span<const int64_t> layer = loads.subspan(first, size_t(experts));
        const double mean = double(std::accumulate(layer.begin(), layer.end(), int64_t(0))) / double(experts);
        if (mean > 0) {
            result.max = std::max(result.max, double(*std::ranges::max_element(layer)) / mean);
            result.min = std::min(result.min, double(*std::ranges::min_element(layer)) / mean);
        }
        result.idle += std::ranges::count(layer, 0);
    }
    if (ranks > 1) {
        std::vector<int64_t> rows;
        for (auto first = loads.begin(); first != loads.end(); first += experts / ranks)
            rows.push_back(std::accumulate(first, first + experts / ranks, int64_t(0)));
        result.rank_max = expert_loads(rows, ranks, 1)->max;
    }
    result.min = std::min(result.min, result.max);
    return result;
}

bool is_part_of_loss(std::string_view key) {
    return key.ends_with("_loss") && !key.starts_with("validation_loss");
}

std::string console_line(const StepMetrics& m, bool color) {
    std::vector<std::string> parts = {
        painted(fmt::format("step: {:2}", m.step), Color::red, color),
        painted(fmt::format("loss: {:8.5f}", m.loss), Color::green, color),
        painted(fmt::format("grad_norm: {:7.4f}", m.grad_norm), Color::yellow, color),
        fmt::format("lr: {:.2e}", m.lr),
        painted(memory_text(m.memory_gib, m.memory_percent), Color::cyan, color),
        painted(fmt::format("tps: {}", with_commas(std::llround(m.tps))), Color::blue, color),
        painted(fmt::format("tflops: {:.2f}", m.tflops), Color::cyan, color),
        painted(m.mfu ? fmt::format("mfu: {:.2f}%", *m.mfu) : std::string("mfu: N/A"), Color::magenta, color),
        fmt::format("eta: {}{}", duration_text(m.eta_s),
                    m.steps > 0 ? fmt::format(" ({}/{})", m.step, m.steps) : ""),
    };
    if (m.experts)
        parts.push_back(fmt::format("expert load: {:.2f} to {:.2f}", m.experts->min, m.experts->max));
    if (m.extra_rounds.value_or(0) > 0) parts.push_back(fmt::format("extra rounds: {}", *m.extra_rounds));
    for (const LossMetric& loss : m.losses)
        parts.push_back(fmt::format("{}: {:.5f}", words_of(loss.name), loss.value));
    if (const std::string gpu = gpu_text(m); !gpu.empty()) parts.push_back("gpu: " + gpu);
    return join(parts, "  ");
}

std::string console_line(const ValidationMetrics& m, bool color) {
    std::vector<std::string> parts = {
        painted(fmt::format("validate step: {:2}", m.step), Color::red, color),
        painted(fmt::format("loss: {:7.4f}", m.loss), Color::green, color),
        painted(memory_text(m.memory_gib, m.memory_percent), Color::cyan, color),
        painted(fmt::format("tps: {}", with_commas(std::llround(m.tps))), Color::blue, color),
    };
    for (const SourceLoss& source : m.sources)
        parts.push_back(fmt::format("{}: {}", source.name,
                                    source.tokens > 0 ? fmt::format("{:.4f}", source.loss) : "no labels"));
    return join(parts, "  ");
}

std::string console_line(int64_t step, const TaskMetrics& m, bool color) {
    std::vector<std::string> parts = {painted(fmt::format("validate step: {:2}", step), Color::red, color),
                                      m.task};
    for (const auto& [metric, value] : m.values)
        parts.push_back(painted(fmt::format("{}: {:.4f}", metric, value), Color::green, color));
    return join(parts, "  ");
}

std::string console_line(int64_t step, const SampleText& sample, bool color) {
    return painted(fmt::format("validate step: {:2}", step), Color::red, color) +
           fmt::format("  after {}: {}", Json(sample.prompt).text(), Json(sample.text).text());
}

std::string json_line(const StepMetrics& m) {
    Json line = Json::object();
    line.set("step", m.step).set("loss", m.loss).set("loss_max", m.loss_max).set("grad_norm", m.grad_norm);
    line.set("lr", m.lr).set("tokens_seen", m.tokens_seen).set("epoch", m.epoch);
    line.set("tps", m.tps).set("tflops", m.tflops);
    line.set("mfu", m.mfu ? Json(*m.mfu) : Json()).set("memory_gib", m.memory_gib);
    line.set("memory_percent", m.memory_percent).set("resident_gib", m.resident_gib);
    line.set("step_s", m.step_s).set("data_s", m.data_s);
    line.set("data_percent", m.data_percent()).set("eta_s", m.eta_s);
    if (m.experts)
        line.set("moe_load_max", m.experts->max)
            .set("moe_load_min", m.experts->min)
            .set("moe_idle_experts", m.experts->idle);
    if (m.experts && m.experts->rank_max) line.set("moe_rank_load_max", *m.experts->rank_max);
    if (m.extra_rounds) line.set("moe_extra_rounds", *m.extra_rounds);
    if (m.steps_computed_twice) line.set("moe_steps_computed_twice", *m.steps_computed_twice);
    for (const LossMetric& loss : m.losses) line.set(loss.key(), loss.value);
    if (m.gpu_memory_gib) line.set("gpu_memory_gib", *m.gpu_memory_gib);
    if (m.gpu_power_w) line.set("gpu_power_w", *m.gpu_power_w);
    if (m.gpu_clock_mhz) line.set("gpu_clock_mhz", *m.gpu_clock_mhz);
    if (m.gpu_temperature_c) line.set("gpu_temperature_c", *m.gpu_temperature_c);
    if (m.gpu_throttle) line.set("gpu_throttle", *m.gpu_throttle);
    return line.text();
}

std::string json_line(const ValidationMetrics& m) {
    Json line = Json::object();
    line.set("step", m.step).set("validation_loss", m.loss).set("validation_tokens", m.tokens);
    line.set("validation_s", m.seconds).set("validation_tps", m.tps);
    line.set("memory_gib", m.memory_gib).set("memory_percent", m.memory_percent);
    for (const SourceLoss& source : m.sources) {
        line.set("validation_loss/" + source.name, source.tokens > 0 ? Json(source.loss) : Json());
        line.set("validation_tokens/" + source.name, source.tokens);
    }
    return line.text();
}

std::string json_line(int64_t step, const TaskMetrics& m) {
    Json line = Json::object();
    line.set("step", step).set("task", m.task);
    for (const auto& [metric, value] : m.values)
        line.set(metric, std::isfinite(value) ? Json(value) : Json());
    return line.text();
}

std::string json_line(int64_t step, const SampleText& sample) {
    return Json::object().set("step", step).set("prompt", sample.prompt).set("text", sample.text).text();
}

std::string json_line(const CheckpointMetrics& m) {
    Json line = Json::object();
    line.set("step", m.at_step).set("checkpoint_step", m.step).set("checkpoint_gib", m.gib);
    line.set("checkpoint_s", m.seconds).set("checkpoint_stall_s", m.seconds_waited);
    return line.text();
}

std::string with_times(std::string line, double time, double run_seconds) {
    require(line.ends_with('}') && line.size() > 2, "a line of metrics.jsonl is an object with fields");
    line.pop_back();
    return fmt::format("{},\"time\":{:.3f},\"run_s\":{:.3f}}}", line, time, run_seconds);
}

MetricsFile::MetricsFile(const std::filesystem::path& file, const Past& past) : path_(file) {
    drop_what_comes_again(path_, past);
    file_.emplace(path_);
    file_->require_open();
}

void MetricsFile::go_back(const Past& past) {
    file_.reset();
    try {
        drop_what_comes_again(path_, past);
    } catch (const std::runtime_error& failure) {  // a folder in its place too
        log::warn("{}", failure.what());
    }
    file_.emplace(path_);
}

void StepClock::finish(StepMetrics& m, double tokens_per_step, double flops_per_token,
                       std::optional<double> peak_flops, int64_t steps_left) {
    m.step_s = step_s_ / double(steps_);
    m.data_s = data_s_ / double(steps_);
    m.tps = tokens_per_step / m.step_s;
    m.tflops = flops_per_token * m.tps / 1e12;
    // more than the peak is not a measurement: the formula counts products that a causal mask leaves out, or
    // the peak was measured while the machine was busy
    if (peak_flops)
        if (const double mfu = 100 * flops_per_token * m.tps / *peak_flops; mfu <= 100) m.mfu = mfu;
    m.eta_s = m.step_s * double(steps_left);
    *this = StepClock{};
}

}  // namespace coeus
