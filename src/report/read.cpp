// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/metrics/run_folder.hpp"
#include "coeus/report/report.hpp"
#include "derived.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

namespace coeus {

namespace {

namespace fs = std::filesystem;

// Fields with other values than numbers; they are not series.
constexpr std::string_view words[] = {"gpu_throttle", "straggler_phase", "straggler_host", "straggler_group",
                                      "straggler_throttle"};
constexpr const char* metrics_name = "metrics.jsonl";

// Folders of runs directly below a folder, at most five.
std::vector<std::string> runs_below(const fs::path& folder) {
    std::vector<std::string> found;
    std::error_code unreadable;
    for (const fs::path& entry : entries_patiently(folder, unreadable))
        if (exists_patiently(entry / metrics_name)) found.push_back(entry.string());
    std::sort(found.begin(), found.end());
    if (found.size() > 5) found.resize(5);
    return found;
}

fs::path folder_of(const std::string& given) {
    fs::path path(given);
    if (is_file_patiently(path)) {
        if (path.filename() == metrics_name) return path.has_parent_path() ? path.parent_path() : ".";
        throw ConfigError("{} is not a run: give the folder of a run (job.dump_folder) or its {}", given,
                          metrics_name);
    }
    if (!leads_somewhere(path))
        throw ConfigError("{} does not exist; give the folder of a run (job.dump_folder)", given);
    if (exists_patiently(path / metrics_name)) return path;
    const std::vector<std::string> near = runs_below(path);
    throw ConfigError("{} is not the folder of a run: it has no {}{}", given, metrics_name,
                      near.empty() ? "" : "; runs in it: " + join(near, ", "));
}

// Adds a value as series "TASK METRIC". `task`: its name, and in words how it was computed, if that is
// another way than the usual one: values of two ways are not one curve.
void add_of_task(const std::string& task, const std::string& metric, int64_t step, double value,
                 RunData& run) {
    const std::string field = task + " " + metric;
    if (!run.series.contains(field)) {
        run.fields.push_back(field);
        run.evaluations.push_back({task, metric, field});
    }
    run.series[field][step] = value;
}

// Adds what a validation has found of a task.
void add_task_line(const JsonView& line, RunData& run) {
    for (const auto& [field, value] : line.items())
        if (field != "step" && field != "task" && field != "time" && field != "run_s" && !value.is_null())
            if (const std::optional<double> number = drawable(value.number()))
                add_of_task(line.string("task") + " in validations", field, line.integer("step"), *number,
                            run);
}

// Adds one line of metrics.jsonl. A validation line repeats the memory of its step, so only its validation_
// fields count.
void add_line(const JsonView& line, RunData& run) {
    if (line.contains("event")) return;  // an event of the guards is not part of a curve
    if (line.contains("task")) return add_task_line(line, run);
    const int64_t step = line.integer("step");
    const bool validation = line.contains("validation_loss");
    for (const auto& [field, value] : line.items()) {
        if (field == "step" || value.is_null() || (validation && !field.starts_with("validation_"))) continue;
        if (std::ranges::find(words, field) != std::end(words)) continue;
        const std::optional<double> number = drawable(value.number());
        if (!number) continue;
        if (!run.series.contains(field)) run.fields.push_back(field);
        run.series[field][step] = *number;
    }
}

// Calls each(line) for the objects of a file of JSON Lines.
template <class Each>
void for_each_line(const fs::path& file, RunData& run, const Each& each) {
    if (!is_file_patiently(file) && exists_patiently(file))
        throw ConfigError("cannot read {}: it is a folder, a pipe or a device, not a file", file.string());
    std::error_code failed;
    std::istringstream in(text_patiently(file, failed));
    if (failed) throw ConfigError("cannot read {}: {}", file.string(), failed.message());
    int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
        const std::string place = fmt::format("{}:{}", file.string(), ++number);
        const bool cut_short = in.eof();  // the line has no line end
        try {
            const JsonDocument document = JsonDocument::parse(line, place);
            if (!document.root().is_object()) throw ConfigError("{}: is not a JSON object", place);
            each(document.root());
        } catch (const ConfigError&) {
            if (!cut_short) throw;
            run.notices.push_back(fmt::format("{}: skipped, since the line is incomplete", place));
        }
    }
}

void read_metrics(const fs::path& file, RunData& run) {
    for_each_line(file, run, [&](const JsonView& line) { add_line(line, run); });
    if (run.series.empty()) throw ConfigError("{} has no logged step yet", file.string());
}

// " (context 16, stride 8)"
std::string words_of_settings(const JsonView& line) {
    const auto settings = line.find("settings");
    std::vector<std::string> named;
    if (settings)
        for (const auto& [name, value] : settings->items()) {
            const std::string* text = value.value().as_string();
            named.push_back(name + " " + (text ? *text : value.value().text()));
        }
    return named.empty() ? "" : " (" + join(named, ", ") + ")";
}

// Adds the results of `coeus evaluate`, as series "TASK METRIC" or "TASK (SETTINGS) METRIC".
void read_evaluations(const fs::path& file, RunData& run) {
    if (!exists_patiently(file)) return;
    for_each_line(file, run, [&](const JsonView& line) {
        const std::optional<double> number =
            line.contains("value") ? drawable(line.number("value")) : std::nullopt;
        if (!number) return;
        add_of_task(line.string("task") + words_of_settings(line), line.string("metric"),
                    line.integer("step"), *number, run);
    });
}

void read_samples(const fs::path& file, RunData& run) {
    if (!exists_patiently(file)) return;
    for_each_line(file, run, [&](const JsonView& line) {
        run.samples.push_back({line.integer("step"), line.string("prompt"), line.string("text")});
    });
}

RunData read_run(const std::string& given) {
    RunData run;
    run.folder = folder_of(given);
    read_metrics(run.folder / metrics_name, run);
    run.expert_loads = read_load_history(run.folder / "expert_loads.jsonl");
    const std::vector<StartTimes> times = read_start_times(run.folder / "goodput.jsonl");
    run.goodput = goodput_of(times);
    run.starts = starts_of(times);
    add_derived(run);
    read_evaluations(run.folder / evaluation_file, run);
    read_samples(run.folder / samples_file_name, run);
    if (const fs::path deck = run.folder / "deck.toml"; exists_patiently(deck))
        run.deck = read_toml(deck);
    else
        run.notices.push_back(fmt::format("{} has no deck.toml", run.folder.string()));
    return run;
}

// The last `parts` parts of a path.
fs::path last_parts(const fs::path& path, int parts) {
    fs::path name;
    fs::path left = path;
    for (int i = 0; i < parts && left.has_filename(); ++i) {
        name = name.empty() ? left.filename() : left.filename() / name;
        left = left.parent_path();
    }
    return name.empty() ? path : name;
}

// Names the runs by the fewest last parts of their folders' paths that distinguish them.
void name_runs(std::vector<RunData>& runs) {
    constexpr int most_parts = 16;
    for (int parts = 1; parts <= most_parts; ++parts) {
        std::set<std::string> names;
        for (RunData& run : runs) {
            fs::path folder = fs::absolute(run.folder).lexically_normal();
            if (!folder.has_filename()) folder = folder.parent_path();
            run.name = printable(last_parts(folder, parts).string());
            names.insert(run.name);
        }
        if (names.size() == runs.size()) return;
    }
}

}  // namespace

const MetricSeries& RunData::of(const std::string& field) const {
    static const MetricSeries none;
    const auto found = series.find(field);
    return found == series.end() ? none : found->second;
}

int64_t RunData::last_step() const {
    int64_t last = 0;
    for (const auto& [field, values] : series) last = std::max(last, values.rbegin()->first);
    return last;
}

std::vector<RunData> read_runs(const std::vector<std::string>& paths) {
    std::vector<RunData> runs;
    for (const std::string& path : paths) runs.push_back(read_run(path));
    name_runs(runs);
    return runs;
}

void write_report(const fs::path& file, const std::string& text) {
    write_whole_file(file, text);
}

bool write_page_of(const fs::path& run) {
    const fs::path page = run / page_file;
    try {
        write_report(page, report_html(read_runs({run.string()})));
        return true;
    } catch (const std::exception& failure) {
        log::warn("The page {} was not written: {}", page.string(), failure.what());
        return false;
    }
}

}  // namespace coeus
