// SPDX-License-Identifier: Apache-2.0
#include "tables.hpp"

#include "axis.hpp"
#include "coeus/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coeus::report {

namespace {

double last_of(const MetricSeries& values) {
    return values.rbegin()->second;
}

double median_of(const MetricSeries& values) {
    std::vector<double> all;
    for (const auto& [step, value] : values) all.push_back(value);
    std::sort(all.begin(), all.end());
    const size_t half = all.size() / 2;
    return all.size() % 2 ? all[half] : (all[half - 1] + all[half]) / 2;
}

double largest_of(const MetricSeries& values) {
    double largest = last_of(values);
    for (const auto& [step, value] : values) largest = std::max(largest, value);
    return largest;
}

std::string at_step(int64_t step, double value) {
    return fmt::format("{:.4f} at step {}", value, with_commas(step));
}

std::string last_text(const MetricSeries& values) {
    return at_step(values.rbegin()->first, last_of(values));
}

std::string least_text(const MetricSeries& values) {
    const auto least = std::min_element(values.begin(), values.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    return at_step(least->first, least->second);
}

std::string tokens_text(const MetricSeries& values) {
    const double tokens = last_of(values);
    return tokens < 1e6 ? with_commas(int64_t(tokens))
                        : short_number(std::stod(fmt::format("{:.4g}", tokens)));
}

std::string share_text(const MetricSeries& percent) {
    const double median = median_of(percent);
    return median < 0.1 ? "under 0.1 %" : fmt::format("{:.1f} %", median);
}

// Each logged step stands for all steps since the previous logged one.
std::string time_text(const MetricSeries& step_seconds) {
    double sum = 0;
    int64_t before = 0;
    for (const auto& [step, seconds] : step_seconds) {
        sum += seconds * double(step - before);
        before = step;
    }
    return duration_text(sum);
}

struct Figure {
    const char *name, *field;
    std::string (*text)(const MetricSeries& values);
};

const Figure figures[] = {
    {"loss", "loss", last_text},
    {"lowest validation loss", "validation_loss", least_text},
    {"last validation loss", "validation_loss", last_text},
    {"tokens seen", "tokens_seen", tokens_text},
    {"epochs", "epoch", [](const MetricSeries& v) { return fmt::format("{:.3g}", last_of(v)); }},
    {"tokens/s per rank, median", "tps",
     [](const MetricSeries& v) { return with_commas(std::llround(median_of(v))); }},
    {"MFU, median", "mfu", [](const MetricSeries& v) { return fmt::format("{:.1f} %", median_of(v)); }},
    {"time in training steps", "step_s", time_text},
    {"waiting for data, median", "data_percent", share_text},
    {"peak memory of a rank", "memory_gib",
     [](const MetricSeries& v) { return fmt::format("{:.3g} GiB", largest_of(v)); }},
};

bool is_about_output(const std::string& option) {
    return option == "job.dump_folder" || option == "job.config_file" || option == "job.save_config_file" ||
           option == "job.print_config" || option.starts_with("log.") ||
           option == "metrics.disable_color_printing";
}

}  // namespace

std::vector<TableRow> final_figures(const std::vector<RunData>& runs) {
    std::vector<TableRow> rows;
    for (const Figure& figure : figures) {
        TableRow row = {figure.name, {}};
        for (const RunData& run : runs) {
            const MetricSeries& values = run.of(figure.field);
            row.cells.push_back(values.empty() ? "" : figure.text(values));
        }
        if (std::any_of(row.cells.begin(), row.cells.end(), [](const auto& cell) { return !cell.empty(); }))
            rows.push_back(std::move(row));
    }
    TableRow goodput = {"goodput, of wall time", {}};
    bool known = false;
    for (const RunData& run : runs) {
        known |= run.goodput.starts > 0;
        goodput.cells.push_back(run.goodput.starts == 0
                                    ? ""
                                    : fmt::format("{:.1f} % of {}", run.goodput.percent(run.goodput.useful),
                                                  duration_text(run.goodput.wall)));
    }
    if (known) rows.push_back(std::move(goodput));
    return rows;
}

std::string deck_value(const RunData& run, const std::string& option) {
    for (const TomlEntry& entry : run.deck)
        if (entry.key == option) return toml_text(entry.value);
    return "";
}

std::vector<TableRow> deck_differences(const std::vector<RunData>& runs) {
    std::vector<TableRow> rows;
    std::vector<std::string> options;
    for (const RunData& run : runs)
        for (const TomlEntry& entry : run.deck)
            if (std::find(options.begin(), options.end(), entry.key) == options.end())
                options.push_back(entry.key);
    for (const std::string& option : options) {
        TableRow row = {option, {}};
        for (const RunData& run : runs) row.cells.push_back(deck_value(run, option));
        const bool alike = std::all_of(row.cells.begin(), row.cells.end(),
                                       [&](const auto& cell) { return cell == row.cells[0]; });
        if (!alike && !is_about_output(option)) rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace coeus::report
