// SPDX-License-Identifier: Apache-2.0
#include "tables.hpp"

#include "../derived.hpp"
#include "axis.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/toml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <string_view>
#include <utility>

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
    {"bits per byte", "bits_per_byte", last_text},
    {"last validation bits per byte", "validation_bits_per_byte", last_text},
    {"tokens/s of all ranks, median", "total_tps",
     [](const MetricSeries& v) { return with_commas(std::llround(median_of(v))); }},
    {"tokens/s per rank, median", "tps",
     [](const MetricSeries& v) { return with_commas(std::llround(median_of(v))); }},
    {"MFU, median", "mfu", [](const MetricSeries& v) { return fmt::format("{:.1f} %", median_of(v)); }},
    {"time in training steps", "step_s", time_text},
    {"waiting for data, median", "data_percent", share_text},
    {"peak memory of a rank", "memory_gib",
     [](const MetricSeries& v) { return fmt::format("{:.3g} GiB", largest_of(v)); }},
};

// "2026-11-28 21:03 UTC"
std::string date_text(double seconds_since_1970) {
    const auto seconds = time_t(seconds_since_1970);
    tm date{};
    gmtime_r(&seconds, &date);
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", date.tm_year + 1900, date.tm_mon + 1,
                       date.tm_mday, date.tm_hour, date.tm_min);
}

// The value of an option that is a text; "" if the deck does not have it.
std::string text_option(const RunData& run, const std::string& option) {
    for (const TomlEntry& entry : run.deck)
        if (const auto* text = entry.value.as<std::string>(); text != nullptr && entry.key == option)
            return *text;
    return "";
}

// "Qwen3 8B, 8,190,735,360 parameters"
std::string model_text(const RunData& run, const StartRecord& record) {
    if (record.model.empty()) {
        const std::string flavor = text_option(run, "model.flavor");
        return text_option(run, "model.name") + (flavor.empty() ? "" : " " + flavor);
    }
    std::string text = record.model;
    if (record.parameters > 0) text += ", " + with_commas(record.parameters) + " parameters";
    if (record.active_parameters > 0 && record.active_parameters < record.parameters)
        text += ", " + with_commas(record.active_parameters) + " active";
    return text;
}

// "8 ranks: dp_shard 4 x tp 2"
std::string mesh_text(const StartRecord& record) {
    return record.ranks <= 1 ? record.mesh : fmt::format("{} ranks: {}", record.ranks, record.mesh);
}

std::string machine_text(const StartRecord& record) {
    const std::string hosts = hosts_text(record.hosts);
    return record.machine + (record.machine.empty() || hosts.empty() ? "" : "; ") + hosts;
}

std::string data_text(const RunData& run, const StartRecord& record) {
    if (record.data.empty()) {
        if (std::string path = text_option(run, "training.dataset_path"); !path.empty()) return path;
        const std::string paths = deck_value(run, "training.dataset_path");
        return paths.size() <= 2 ? text_option(run, "training.dataset") : paths;  // 2: [], ""
    }
    return record.data +
           (record.bytes_per_token ? fmt::format(", {:.3g} bytes per token", *record.bytes_per_token) : "");
}

bool is_about_output(const std::string& option) {
    return option == "job.dump_folder" || option == "job.config_file" || option == "job.save_config_file" ||
           option == "job.print_config" || option.starts_with("log.") ||
           option == "metrics.disable_color_printing";
}

}  // namespace

std::vector<TableRow> final_figures(const std::vector<RunData>& runs) {
    std::vector<TableRow> rows;
    for (const Figure& figure : figures) {
        if (std::string_view(figure.field) == "total_tps" && have_one_rank(runs)) continue;
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

std::vector<TableRow> facts_of(const std::vector<RunData>& runs) {
    std::vector<TableRow> rows = {
        {"Model", {}}, {"Mesh", {}}, {"Machine", {}}, {"Data", {}}, {"Version", {}}};
    for (const RunData& run : runs) {
        const StartRecord record = run.starts.empty() ? StartRecord() : run.starts.back().record;
        const std::string cells[] = {model_text(run, record), mesh_text(record), machine_text(record),
                                     data_text(run, record), record.version};
        for (size_t i = 0; i < rows.size(); ++i) rows[i].cells.push_back(cells[i]);
    }
    std::erase_if(rows, [](const TableRow& row) {
        return std::ranges::all_of(row.cells, [](const std::string& cell) { return cell.empty(); });
    });
    return rows;
}

std::string description_of(const RunData& run) {
    const std::string text = text_option(run, "job.description");
    return text == "default job" ? "" : text;
}

namespace {

std::map<std::string, std::string> options_of(const std::string& deck) {
    std::map<std::string, std::string> options;
    try {
        for (const TomlEntry& entry : parse_toml(deck, "deck")) options[entry.key] = toml_text(entry.value);
    } catch (const ConfigError&) {
        // a later version may write what this one cannot read; the table then names no changes
    }
    return options;
}

// "optimizer.lr = 0.1, was 0.2": options whose values differ from those of the start before. What is about
// output is left out.
std::string changes_between(const std::string& before, const std::string& now) {
    if (before.empty() || now.empty()) return "";
    auto old = options_of(before);
    std::vector<std::string> changes;
    for (const auto& [option, value] : options_of(now))
        if (const std::string was = old[option]; was != value && !is_about_output(option))
            changes.push_back(option + " = " + value + (was.empty() ? "" : ", was " + was));
    return join(changes, "; ");
}

}  // namespace

std::vector<std::vector<std::string>> table_of_starts(const RunData& run) {
    if (run.starts.empty()) return {};
    std::vector<std::vector<std::string>> rows = {
        {"start", "steps", "began", "for", "mesh", "machine", "changes of the deck", "version", "end"}};
    StartRecord before;
    for (size_t i = 0; i < run.starts.size(); ++i) {
        const RunStart& start = run.starts[i];
        const StartRecord& record = start.record;
        std::string end = start.end;
        if (end.empty() && record != StartRecord())
            end = i + 1 < run.starts.size() ? "killed, or ended by an error"
                                            : "still running, killed, or ended by an error";
        rows.push_back({std::to_string(i + 1),
                        start.last_step == start.first_step
                            ? "none after " + with_commas(start.first_step)
                            : with_commas(start.first_step + 1) + " to " + with_commas(start.last_step),
                        date_text(start.begin), duration_text(start.seconds), mesh_text(record),
                        machine_text(record), changes_between(before.deck, record.deck), record.version,
                        end});
        before = record;
    }
    for (size_t column = rows[0].size(); column-- > 0;) {
        const bool may_be_alike = rows[0][column] == "version";  // the report has it at its head
        const auto says_nothing = [&](const auto& row) {
            return row[column].empty() || (may_be_alike && row[column] == rows[1][column]);
        };
        if (std::all_of(rows.begin() + 1, rows.end(), says_nothing))
            for (std::vector<std::string>& row : rows) row.erase(row.begin() + int64_t(column));
    }
    return rows;
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
