// SPDX-License-Identifier: Apache-2.0
#include "charts.hpp"

#include "../derived.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace coeus::report {

namespace {

constexpr size_t most_dots = 800;  // more cannot be distinguished on a screen
constexpr int x_ticks = 7, y_ticks = 6;
constexpr const char* total_tps = "total_tps";

struct ChartKind {
    const char *title, *unit, *short_unit, *field, *validation_field;
    enum class Range { tight, from_zero, log_if_wide } range;
    bool noisy;  ///< a moving mean is drawn too
};

constexpr ChartKind loss = {"Loss", "nats per token", "", "loss", "validation_loss", ChartKind::Range::tight,
                            true};
constexpr ChartKind over_steps[] = {
    loss,
    {"Bits per byte", "cross entropy", "", "bits_per_byte", "validation_bits_per_byte",
     ChartKind::Range::tight, true},
    {"Gradient norm", "before clipping", "", "grad_norm", nullptr, ChartKind::Range::log_if_wide, true},
    {"Learning rate", "", "", "lr", nullptr, ChartKind::Range::from_zero, false},
    {"Load of experts", "tokens of the busiest / mean", "", "moe_load_max", nullptr,
     ChartKind::Range::from_zero, true},
    {"Load of ranks with experts", "rows of the busiest / mean", "", "moe_rank_load_max", nullptr,
     ChartKind::Range::from_zero, true},
    {"Extra rounds of experts", "per step", "", "moe_extra_rounds", nullptr, ChartKind::Range::from_zero,
     true},
    {"Throughput", "tokens per second per rank", "tokens/s", "tps", nullptr, ChartKind::Range::from_zero,
     true},
    {"Throughput of all ranks", "tokens per second", "tokens/s", total_tps, nullptr,
     ChartKind::Range::from_zero, true},
    {"Memory", "GiB, peak", "GiB", "memory_gib", nullptr, ChartKind::Range::from_zero, false},
    {"Step time", "seconds", "s", "step_s", nullptr, ChartKind::Range::from_zero, true},
    {"Waiting for data", "% of the step", "%", "data_percent", nullptr, ChartKind::Range::from_zero, true},
};

// The x value of a step; none if the run has no value for it.
using Place = std::function<std::optional<double>(int64_t step)>;

// Between two logged steps values are interpolated linearly.
Place along(MetricSeries values) {
    return [values = std::move(values)](int64_t step) -> std::optional<double> {
        const auto after = values.lower_bound(step);
        if (after == values.end()) return std::nullopt;
        if (after->first == step || after == values.begin()) return after->second;
        const auto before = std::prev(after);
        const double part = double(step - before->first) / double(after->first - before->first);
        return before->second + part * (after->second - before->second);
    };
}

// Seconds spent in steps; each logged step stands for those since the one before.
MetricSeries training_seconds(const RunData& run) {
    MetricSeries seconds;
    double sum = 0;
    int64_t before = 0;
    for (const auto& [step, mean] : run.of("step_s")) {
        sum += mean * double(step - before);
        seconds[step] = sum;
        before = step;
    }
    return seconds;
}

std::vector<Dot> dots(const MetricSeries& series, const Place& place) {
    std::vector<Dot> all;
    for (const auto& [step, value] : series)
        if (const auto x = place(step)) all.push_back({*x, value});
    return all;
}

// The values of a stretch of many. There are most_dots / 2 of them.
constexpr size_t stretches = most_dots / 2;
std::span<const Dot> stretch(const std::vector<Dot>& all, size_t number) {
    const size_t first = number * all.size() / stretches, last = (number + 1) * all.size() / stretches;
    return std::span(all).subspan(first, last - first);
}

// The mean of each stretch, of the digits that can be seen.
std::vector<Dot> means_of_stretches(const std::vector<Dot>& all) {
    std::vector<Dot> means;
    for (size_t i = 0; i < stretches; ++i) {
        const std::span<const Dot> of = stretch(all, i);
        double sum = 0;
        for (const Dot& dot : of) sum += dot.y;
        means.push_back({of[of.size() / 2].x, std::stod(fmt::format("{:.6g}", sum / double(of.size())))});
    }
    return means;
}

// Keeps the smallest and the largest value of each stretch, so that no peak is lost.
std::vector<Dot> thinned(const std::vector<Dot>& all) {
    if (all.size() <= most_dots) return all;
    std::vector<Dot> kept;
    const auto lower = [](const Dot& a, const Dot& b) { return a.y < b.y; };
    for (size_t i = 0; i < stretches; ++i) {
        const std::span<const Dot> of = stretch(all, i);
        const auto [least, largest] = std::minmax_element(of.begin(), of.end(), lower);
        kept.push_back(least < largest ? *least : *largest);
        if (least != largest) kept.push_back(least < largest ? *largest : *least);
    }
    if (kept.front().x != all.front().x) kept.insert(kept.begin(), all.front());
    if (kept.back().x != all.back().x) kept.push_back(all.back());
    return kept;
}

// The mean of the values around each value. At the beginning, where curves are steep, the window is shortened
// on both sides; at the end only on the right side.
std::vector<Dot> moving_mean(const std::vector<Dot>& all) {
    const size_t window = mean_window(all.size());
    if (window <= 1) return {};
    std::vector<double> sums = {0};
    for (const Dot& dot : all) sums.push_back(sums.back() + dot.y);
    std::vector<Dot> means;
    const size_t every = std::max<size_t>(1, all.size() / (most_dots / 2));
    for (size_t i = 0; i < all.size(); ++i) {
        if (i % every != 0 && i + 1 != all.size()) continue;
        const size_t half = std::min(window / 2, i), last = std::min(i + half + 1, all.size());
        means.push_back({all[i].x, (sums[last] - sums[i - half]) / double(last + half - i)});
    }
    return means;
}

ChartAxis y_axis(ChartKind::Range range, double low, double high) {
    constexpr double wide = 20;
    if (range == ChartKind::Range::log_if_wide && low > 0 && high / low >= wide)
        return make_axis(low / 1.15, high * 1.15, Scale::log, y_ticks);
    if (range == ChartKind::Range::from_zero && low >= 0)
        return make_axis(0, high > 0 ? high * 1.06 : 1, Scale::linear, y_ticks);
    const double room = 0.04 * (high - low);
    return make_axis(low - room, high + room, Scale::linear, y_ticks);
}

std::optional<ChartAxis> log_axis(double low, double high, double room, int wanted) {
    if (!(low > 0)) return std::nullopt;
    return make_axis(low / room, high * room, Scale::log, wanted);
}

// The later starts of all runs, within the chart's x axis.
std::vector<StartMark> marks_of_starts(const ChartAxis& x, const std::vector<RunData>& runs,
                                       const std::vector<Place>& places) {
    std::vector<StartMark> marks;
    for (size_t run = 0; run < runs.size(); ++run)
        for (size_t i = 1; i < runs[run].starts.size(); ++i) {
            const auto at = places[run](runs[run].starts[i].first_step);
            if (at && *at >= x.low && *at <= x.high) marks.push_back({run, i + 1, *at});
        }
    return marks;
}

// `places`: the x values of each run. Without curves if no run has the field.
Chart make_chart(const ChartKind& kind, const std::string& x_title, const std::vector<RunData>& runs,
                 const std::vector<Place>& places) {
    Chart chart = {.title = kind.title, .unit = kind.unit, .short_unit = kind.short_unit, .x_title = x_title};
    double low = std::numeric_limits<double>::infinity(), high = -low, first = low, last = -low;
    for (size_t run = 0; run < runs.size(); ++run) {
        for (const char* field : {kind.field, kind.validation_field}) {
            const std::vector<Dot> all = field ? dots(runs[run].of(field), places[run]) : std::vector<Dot>{};
            if (all.empty()) continue;
            for (const Dot& dot : all) {
                low = std::min(low, dot.y);
                high = std::max(high, dot.y);
            }
            first = std::min(first, all.front().x);
            last = std::max(last, all.back().x);
            const bool validation = field == kind.validation_field;
            const bool noisy = kind.noisy && !validation;
            chart.curves.push_back(
                {.run = run,
                 .validation = validation,
                 .logged = thinned(all),
                 .smooth = noisy ? moving_mean(all) : std::vector<Dot>{},
                 .noisy = noisy,
                 .values = all.size(),
                 .means = noisy && all.size() > most_dots ? means_of_stretches(all) : std::vector<Dot>{}});
        }
    }
    if (chart.curves.empty()) return chart;
    chart.x = make_axis(first, last, Scale::linear, x_ticks);
    chart.y = y_axis(kind.range, low, high);
    chart.log_x = log_axis(first, last, 1, x_ticks);
    chart.log_y = log_axis(low, high, 1.05, y_ticks);
    chart.starts = marks_of_starts(chart.x, runs, places);
    std::erase_if(chart.starts, [&](const StartMark& mark) {
        return std::ranges::none_of(chart.curves, [&](const Curve& curve) { return curve.run == mark.run; });
    });
    return chart;
}

// The x axis of a chart over steps, drawn over other places.
std::optional<XAxis> other_axis(const Chart& chart, const StepPlaces& other) {
    double first = std::numeric_limits<double>::infinity(), last = -first;
    for (const Curve& curve : chart.curves) {
        const MetricSeries& places = other.runs[curve.run];
        if (places.empty()) return std::nullopt;
        const Place place = along(places);
        // steps after the last place are drawn there
        const auto at = [&](const Dot& dot) {
            return place(int64_t(dot.x)).value_or(places.rbegin()->second);
        };
        first = std::min(first, at(curve.logged.front()));
        last = std::max(last, at(curve.logged.back()));
    }
    return XAxis{make_axis(first, last, Scale::linear, x_ticks), log_axis(first, last, 1, x_ticks)};
}

// A chart for each source of the validation data, with its loss; and for each task, with the accuracy or the
// loss of a token.
std::vector<Chart> charts_of_measures(const std::vector<RunData>& runs, const std::vector<Place>& places) {
    std::vector<Chart> charts;
    std::set<std::string> drawn;
    const auto add = [&](const std::string& field, const std::string& title, const char* unit) {
        if (!drawn.insert(field).second) return;
        const ChartKind kind = {.title = title.c_str(),
                                .unit = unit,
                                .short_unit = "",
                                .field = field.c_str(),
                                .validation_field = nullptr,
                                .range = ChartKind::Range::tight,
                                .noisy = false};
        charts.push_back(make_chart(kind, "step", runs, places));
    };
    constexpr std::string_view of_source = "validation_loss/";
    for (const RunData& run : runs) {
        for (const std::string& field : run.fields)
            if (field.starts_with(of_source))
                add(field, "Validation loss of " + field.substr(of_source.size()), "nats per token");
        for (const EvaluatedMetric& of_task : run.evaluations)
            if (of_task.metric == "loss")
                add(of_task.field, "Loss of " + of_task.task, "nats per token");
            else if (of_task.metric == "acc")
                add(of_task.field, "Accuracy on " + of_task.task, "");
    }
    return charts;
}

struct TimeUnit {
    double seconds;
    const char* name;
};

TimeUnit time_unit(double longest) {
    if (longest >= 2 * 86400) return {86400, "days"};
    if (longest >= 2 * 3600) return {3600, "hours"};
    if (longest >= 120) return {60, "minutes"};
    return {1, "seconds"};
}

}  // namespace

size_t mean_window(size_t values) {
    return values < 100 ? 1 : std::max<size_t>(5, values / 40) | 1;
}

std::vector<StepPlaces> other_places_of(const std::vector<RunData>& runs) {
    double longest = 0;
    for (const RunData& run : runs)
        if (const MetricSeries& seconds = run.of("run_s"); !seconds.empty())
            longest = std::max(longest, seconds.rbegin()->second);
    const TimeUnit unit = time_unit(longest);
    std::vector<StepPlaces> all = {{.title = "tokens"}, {.title = std::string(unit.name) + " of the run"}};
    for (const RunData& run : runs) {
        all[0].runs.push_back(run.of("tokens_seen"));
        all[1].runs.push_back(run.of("run_s"));
        for (auto& [step, seconds] : all[1].runs.back()) seconds /= unit.seconds;
    }
    std::erase_if(all, [](const StepPlaces& places) {
        return std::ranges::all_of(places.runs, [](const MetricSeries& run) { return run.empty(); });
    });
    return all;
}

std::vector<Chart> charts_of(const std::vector<RunData>& runs) {
    std::vector<Place> steps(runs.size(), [](int64_t step) { return double(step); }), tokens, times;
    std::vector<MetricSeries> seconds;
    double longest = 0;
    for (const RunData& run : runs) {
        tokens.push_back(along(run.of("tokens_seen")));
        seconds.push_back(training_seconds(run));
        if (!seconds.back().empty()) longest = std::max(longest, seconds.back().rbegin()->second);
    }
    const TimeUnit unit = time_unit(longest);
    for (MetricSeries& run : seconds) {
        for (auto& [step, value] : run) value /= unit.seconds;
        times.push_back(along(run));
    }
    std::vector<Chart> charts;
    for (const ChartKind& kind : over_steps)
        if (std::string_view(kind.field) != total_tps || !have_one_rank(runs))
            charts.push_back(make_chart(kind, "step", runs, steps));
    const std::vector<Chart> measures = charts_of_measures(runs, steps);
    charts.insert(charts.begin() + 1, measures.begin(), measures.end());
    const std::vector<StepPlaces> others = other_places_of(runs);
    for (Chart& chart : charts)
        if (!chart.curves.empty())
            for (const StepPlaces& other : others) chart.other_x.push_back(other_axis(chart, other));
    if (runs.size() > 1) {
        ChartKind by_tokens = loss, by_time = loss;
        by_tokens.title = "Loss over tokens";
        by_time.title = "Loss over training time";
        const std::string time_title = std::string(unit.name) + " in training steps";
        charts.insert(charts.begin() + 1, {make_chart(by_tokens, "tokens", runs, tokens),
                                           make_chart(by_time, time_title, runs, times)});
    }
    std::erase_if(charts, [](const Chart& chart) { return chart.curves.empty(); });
    return charts;
}

}  // namespace coeus::report
