// SPDX-License-Identifier: Apache-2.0
#include "coeus/metrics/goodput.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

namespace coeus {

namespace {

std::string json_line(const StartTimes& t) {
    Json line = Json::object();
    line.set("start", t.start).set("time", t.time).set("step", t.step).set("start_up_s", t.start_up);
    line.set("step_s", t.steps).set("data_s", t.data).set("validation_s", t.validation);
    line.set("saving_s", t.saving);
    if (t.steps_taken_back > 0)
        line.set("taken_back_s", t.taken_back).set("steps_taken_back", t.steps_taken_back);
    if (t.complete) line.set("complete", true);
    if (t.job_start > 0) line.set("job_start", t.job_start);
    if (!t.end.empty()) line.set("end", t.end);
    if (t.record) line.set("record", json_of(*t.record));
    return line.text();
}

// The sums of a start when the run had taken `step` steps.
StartTimes at_step(const std::vector<StartTimes>& lines, int64_t step) {
    const auto after = std::ranges::find_if(lines, [&](const StartTimes& line) { return line.step > step; });
    if (after == lines.end()) return lines.back();
    if (after == lines.begin()) return {.step = lines.front().step};
    StartTimes at = *(after - 1);
    const double part = double(step - at.step) / double(after->step - at.step);
    at.step = step;
    at.steps += part * (after->steps - at.steps);
    at.data += part * (after->data - at.data);
    return at;
}

// The lines of each start.
std::vector<std::vector<StartTimes>> by_start(const std::vector<StartTimes>& lines) {
    std::vector<std::vector<StartTimes>> starts;
    for (const StartTimes& line : lines) {
        if (starts.empty() || starts.back().front().start != line.start) starts.emplace_back();
        starts.back().push_back(line);
    }
    return starts;
}

// The time between the last line of a start and the next start.
void add_pause(const StartTimes& before, const StartTimes& next, Goodput& sum) {
    const double pause = std::max(0.0, next.start - before.time);
    const double queued = next.job_start > 0 ? std::clamp(next.job_start - before.time, 0.0, pause) : 0;
    if (before.complete) {
        sum.idle += pause;
    } else {
        sum.queued += queued;
        sum.between += pause - queued;
    }
}

}  // namespace

double Goodput::other() const {
    return std::max(0.0, wall - useful - data - repeated - start_up - validation - saving - between);
}

std::vector<Goodput::Part> Goodput::parts() const {
    return {{"useful steps", useful},    {"waiting for data", data}, {"validation", validation},
            {"saving", saving},          {"start-up", start_up},     {"repeated steps", repeated},
            {"between starts", between}, {"other", other()}};
}

Goodput goodput_of(const std::vector<StartTimes>& lines) {
    const std::vector<std::vector<StartTimes>> starts = by_start(lines);
    Goodput sum;
    if (starts.empty()) return sum;
    sum.starts = int64_t(starts.size());
    sum.wall = starts.back().back().time - starts.front().front().start;
    sum.steps = starts.back().back().step;
    int64_t counted = sum.steps;  // a later start repeated the steps after this one
    for (size_t i = starts.size(); i-- > 0;) {
        const std::vector<StartTimes>& start = starts[i];
        const StartTimes &all = start.back(), kept = at_step(start, counted);
        sum.useful += kept.steps - kept.data;
        sum.data += kept.data;
        sum.repeated += all.steps - kept.steps + all.taken_back;
        sum.repeated_steps += all.step - kept.step + all.steps_taken_back;
        sum.start_up += all.start_up;
        sum.validation += all.validation;
        sum.saving += all.saving;
        if (i > 0) add_pause(starts[i - 1].back(), start.front(), sum);
        counted = std::min(counted, start.front().step);
    }
    sum.wall -= sum.queued + sum.idle;
    return sum;
}

std::vector<RunStart> starts_of(const std::vector<StartTimes>& lines) {
    std::vector<RunStart> starts;
    for (const std::vector<StartTimes>& own : by_start(lines)) {
        const StartTimes &first = own.front(), &last = own.back();
        starts.push_back({.record = first.record.value_or(StartRecord()),
                          .begin = first.start,
                          .seconds = last.time - first.start,
                          .first_step = first.step,
                          .last_step = last.step,
                          .end = last.complete ? "complete" : last.end});
    }
    return starts;
}

std::vector<StartTimes> read_start_times(const std::filesystem::path& file) {
    std::vector<StartTimes> lines;
    std::error_code ignored;  // then it has no lines
    std::istringstream in(text_patiently(file, ignored));
    for (std::string text; std::getline(in, text);) {
        try {
            const JsonDocument document = JsonDocument::parse(text, file.string());
            const JsonView line = document.root();
            lines.push_back({.start = line.number("start"),
                             .time = line.number("time"),
                             .step = line.integer("step"),
                             .start_up = line.number("start_up_s"),
                             .steps = line.number("step_s"),
                             .data = line.number("data_s"),
                             .validation = line.number("validation_s"),
                             .saving = line.number("saving_s")});
            if (line.contains("complete")) lines.back().complete = line.boolean("complete");
            if (line.contains("job_start")) lines.back().job_start = line.number("job_start");
            lines.back().end = line.string("end", "");
            if (const auto record = line.find("record")) lines.back().record = start_record(*record);
            if (!line.contains("steps_taken_back")) continue;
            lines.back().taken_back = line.number("taken_back_s");
            lines.back().steps_taken_back = line.integer("steps_taken_back");
        } catch (const ConfigError&) {
            continue;  // an incomplete line: the run was killed
        }
    }
    return lines;
}

std::string goodput_text(const Goodput& goodput) {
    std::vector<std::string> parts;
    const std::vector<Goodput::Part> all = goodput.parts();
    for (size_t i = 1; i < all.size(); ++i) {
        const double percent = goodput.percent(all[i].seconds);
        if (!(percent >= 0.05)) continue;
        parts.push_back(fmt::format("{} {:.1f} %", all[i].name, percent));
        if (all[i].name == std::string_view("repeated steps"))
            parts.back() += fmt::format(" ({})", goodput.repeated_steps);
    }
    std::string apart;
    if (goodput.queued >= 1)
        apart += fmt::format("; {} in the queue between starts", duration_text(goodput.queued));
    if (goodput.idle >= 1)
        apart += fmt::format("; {} between a complete run and its extension", duration_text(goodput.idle));
    return fmt::format("Goodput {:.1f} % ({}{}){}{}{}", goodput.percent(goodput.useful),
                       duration_text(goodput.wall),
                       goodput.starts > 1 ? fmt::format(" in {} starts", goodput.starts) : "",
                       parts.empty() ? "" : ": ", join(parts, ", "), apart);
}

RunClock::RunClock(const std::filesystem::path& file, double own) : before_(own) {
    for (const RunStart& start : starts_of(read_start_times(file))) before_ += start.seconds;
}

GoodputClock::GoodputClock(const std::filesystem::path& file, double start_up, int64_t step,
                           std::optional<StartRecord> record) {
    times_ = {.start = seconds_since_1970() - start_up,
              .step = step,
              .start_up = start_up,
              .record = std::move(record)};
    if (const char* of_slurm = std::getenv("SLURM_JOB_START_TIME"))
        times_.job_start = std::max(0.0, std::atof(of_slurm));
    if (file.empty()) return;
    file_.emplace(file);
    file_->require_open();
    write(step);
}

void GoodputClock::add_step(double seconds, double data_seconds) {
    times_.steps += seconds;
    times_.data += data_seconds;
    ++steps_that_count_;
}

void GoodputClock::take_back(int64_t steps) {
    steps = std::min(steps, steps_that_count_);
    if (steps == 0) return;
    const double part = double(steps) / double(steps_that_count_), seconds = part * times_.steps;
    times_.taken_back += seconds;
    times_.steps_taken_back += steps;
    times_.steps -= seconds;
    times_.data -= part * times_.data;
    steps_that_count_ -= steps;
}

void GoodputClock::write(int64_t step) {
    if (!file_ || (!asked_ && since_line_.seconds() < pause)) return;
    asked_ = false;
    since_line_.restart();
    times_.step = step;
    times_.time = seconds_since_1970();
    is_written_ = file_->append(json_line(times_));
    if (is_written_) times_.record.reset();
}

std::string GoodputClock::finish(int64_t step, bool complete, const std::string& end) {
    if (!file_) return "";
    times_.complete = complete;
    times_.end = end;
    ask_for_line();
    write(step);
    std::vector<StartTimes> lines = read_start_times(file_->path());
    if (!is_written_) lines.push_back(times_);
    return goodput_text(goodput_of(lines));
}

}  // namespace coeus
