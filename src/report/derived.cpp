// SPDX-License-Identifier: Apache-2.0
#include "derived.hpp"

#include "coeus/metrics/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>

namespace coeus {

namespace {

void add(RunData& run, const std::string& field, MetricSeries values) {
    std::erase_if(values, [](const auto& of_step) { return !drawable(of_step.second); });
    for (auto& [step, value] : values) value = *drawable(value);
    if (values.empty()) return;
    run.fields.push_back(field);
    run.series[field] = std::move(values);
}

// The start that took a step; of several, the last one. Null if none is known.
const RunStart* start_of(const RunData& run, int64_t step) {
    const auto took = [&](const RunStart& start) { return start.first_step < step; };
    const auto found = std::find_if(run.starts.rbegin(), run.starts.rend(), took);
    return found == run.starts.rend() ? nullptr : &*found;
}

// The tokens since the previous logged step, divided by the time of these steps. A window in which a start
// begins has two speeds and is left out.
MetricSeries total_tps(const RunData& run) {
    MetricSeries total;
    const MetricSeries &tokens = run.of("tokens_seen"), &seconds = run.of("step_s");
    int64_t step_before = run.starts.empty() ? 0 : run.starts.front().first_step;
    double tokens_before = 0;
    bool known = step_before == 0;  // a run that begins at another run's checkpoint has seen its tokens
    for (const auto& [step, seen] : tokens) {
        const auto time = seconds.find(step);
        const auto begins_inside = [&, step = step](const RunStart& start) {
            return start.first_step > step_before && start.first_step < step;
        };
        if (known && time != seconds.end() && time->second > 0 && seen > tokens_before &&
            !std::any_of(run.starts.begin(), run.starts.end(), begins_inside))
            total[step] = (seen - tokens_before) / (double(step - step_before) * time->second);
        step_before = step;
        tokens_before = seen;
        known = true;
    }
    return total;
}

// `losses`: nats per token.
MetricSeries bits_per_byte(const RunData& run, const MetricSeries& losses,
                           std::optional<double> StartRecord::*bytes_per_token) {
    MetricSeries bits;
    for (const auto& [step, loss] : losses) {
        const RunStart* start = start_of(run, step);
        if (start == nullptr) continue;
        if (const std::optional<double>& bytes = start->record.*bytes_per_token; bytes && *bytes > 0)
            bits[step] = loss / std::numbers::ln2 / *bytes;
    }
    return bits;
}

// The loss without its parts that are not the cross entropy of the next token.
MetricSeries cross_entropy(const RunData& run) {
    MetricSeries losses = run.of("loss");
    for (const auto& [field, values] : run.series)
        if (is_part_of_loss(field))
            for (const auto& [step, value] : values)
                if (const auto at = losses.find(step); at != losses.end()) at->second -= value;
    return losses;
}

}  // namespace

std::optional<double> drawable(double value) {
    constexpr double most = 1e300;
    if (!(std::fabs(value) <= most)) return std::nullopt;
    return std::fabs(value) < 1 / most ? 0 : value;
}

void add_derived(RunData& run) {
    add(run, "total_tps", total_tps(run));
    add(run, "bits_per_byte", bits_per_byte(run, cross_entropy(run), &StartRecord::bytes_per_token));
    add(run, "validation_bits_per_byte",
        bits_per_byte(run, run.of("validation_loss"), &StartRecord::validation_bytes_per_token));
}

bool have_one_rank(const std::vector<RunData>& runs) {
    return std::ranges::all_of(runs, [](const RunData& run) {
        const auto has_one = [](const RunStart& start) { return start.record.ranks == 1; };
        return !run.starts.empty() && std::ranges::all_of(run.starts, has_one);
    });
}

}  // namespace coeus
