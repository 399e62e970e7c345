// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/stragglers.hpp"

#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coeus {

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr size_t sent_numbers = num_step_phases + 3;

std::array<double, sent_numbers> packed(const RankTimes& times) {
    std::array<double, sent_numbers> numbers{};
    std::ranges::copy(times.phases.seconds, numbers.begin());
    numbers[num_step_phases] = times.step;
    numbers[num_step_phases + 1] = times.clock_mhz;
    numbers[num_step_phases + 2] = times.throttle;
    return numbers;
}

RankTimes unpacked(std::span<const double> numbers) {
    RankTimes times;
    std::ranges::copy(numbers.first(num_step_phases), times.phases.seconds.begin());
    times.step = numbers[num_step_phases];
    times.clock_mhz = numbers[num_step_phases + 1];
    times.throttle = numbers[num_step_phases + 2];
    return times;
}

// With an even number of values the lower median: of two ranks the slower is compared with the faster.
double lower_median(std::vector<double> values) {
    const auto middle = values.begin() + int64_t((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// The axes over which the exchanges of a phase go; 0: not an exchange, or one of all ranks.
unsigned axes_of(StepPhase phase) {
    switch (phase) {
        case StepPhase::along_pp: return Axis::pp;
        case StepPhase::along_tp: return Axis::tp;
        case StepPhase::along_cp: return Axis::cp;
        case StepPhase::along_ep: return Axis::ep;
        case StepPhase::along_dp: return axis::dp | Axis::cp;
        default: return 0;
    }
}

// A rank with its time, or a group of ranks with its shortest wait: candidates of a phase are compared.
struct Candidate {
    std::vector<int> ranks;
    double seconds;
};

std::vector<Candidate> candidates_of(const MeshShape& mesh, const std::vector<RankTimes>& ranks,
                                     StepPhase phase, int stage) {
    std::vector<Candidate> all;
    if (phase == StepPhase::world) return all;
    const unsigned axes = axes_of(phase);
    for (const std::vector<int>& group : mesh.groups(axes)) {
        if (axes != Axis::pp && mesh.coordinate(group[0], Axis::pp) != stage) continue;
        if (axes == Axis::pp && stage > 0) continue;  // all stages are in each group
        Candidate candidate = {group, std::numeric_limits<double>::infinity()};
        for (const int rank : group)
            candidate.seconds = std::min(candidate.seconds, ranks[size_t(rank)].phases[phase]);
        if (std::isfinite(candidate.seconds)) all.push_back(std::move(candidate));
    }
    return all;
}

std::optional<Straggler> slowest_of(const std::vector<Candidate>& candidates, StepPhase phase) {
    if (candidates.size() < 2) return std::nullopt;
    const Candidate& slowest = *std::ranges::max_element(candidates, {}, &Candidate::seconds);
    std::vector<double> seconds;
    for (const Candidate& candidate : candidates) seconds.push_back(candidate.seconds);
    Straggler s{.phase = phase, .rank = slowest.ranks[0], .seconds = slowest.seconds - lower_median(seconds)};
    if (axes_of(phase) != 0) s.group = slowest.ranks;
    return s;
}

// A GPU that throttles, if the computation cannot be observed.
std::optional<Straggler> slowest_clock(const std::vector<RankTimes>& ranks, double percent, double median) {
    const auto slowest = std::ranges::min_element(ranks, {}, &RankTimes::clock_mhz);
    if (std::isfinite(slowest->phases[StepPhase::compute]) || slowest->throttle == 0) return std::nullopt;
    if (!(slowest->clock_mhz > 0 && slowest->clock_mhz < median * (1 - percent / 100))) return std::nullopt;
    return Straggler{
        .phase = StepPhase::compute, .rank = int(slowest - ranks.begin()), .seconds = not_a_number};
}

std::string what_of(const Straggler& s) {
    switch (s.phase) {
        case StepPhase::data: return "it waits for its data";
        case StepPhase::compute: return "its computation takes";
        case StepPhase::saving: return "its part of saving takes";
        default: return fmt::format("its exchanges along {} take", name_of(s.phase));
    }
}

std::string gpu_text(const Straggler& s) {
    if (s.clock_mhz <= 0) return "";
    return fmt::format("; its GPU runs at {:.0f} MHz, the median at {:.0f}{}", s.clock_mhz,
                       s.median_clock_mhz, s.throttle.empty() ? "" : " (" + s.throttle + ")");
}

std::string trend_text(const Straggler& s) {
    if (!s.seconds_before) return "";
    const double change = 1e3 * (s.seconds - *s.seconds_before);
    return fmt::format("; {:.1f} ms {} than before", std::abs(change), change >= 0 ? "more" : "less");
}

}  // namespace

namespace {

// Seconds of a step with its share of saving, which follows the step.
double whole_step(const RankTimes& rank) {
    const double saving = rank.phases[StepPhase::saving];
    return rank.step + (std::isfinite(saving) ? saving : 0);
}

}  // namespace

std::vector<Straggler> find_stragglers(const MeshShape& mesh, const std::vector<RankTimes>& ranks,
                                       double percent) {
    std::vector<double> clocks;
    for (const RankTimes& rank : ranks) clocks.push_back(rank.clock_mhz);
    const double median_clock = lower_median(clocks);
    std::vector<Straggler> found;
    for (size_t i = 0; i < num_step_phases; ++i) {
        std::optional<Straggler> worst;
        for (int stage = 0; stage < mesh.pp; ++stage)
            if (auto s = slowest_of(candidates_of(mesh, ranks, StepPhase(i), stage), StepPhase(i));
                s && (!worst || s->seconds > worst->seconds))
                worst = std::move(s);
        if (!worst || !(worst->seconds > 0) || !(100 * worst->seconds >= percent * whole_step(ranks[0])))
            continue;
        found.push_back(*worst);
    }
    if (const auto slow = slowest_clock(ranks, percent, median_clock)) found.push_back(*slow);
    std::ranges::stable_sort(found, {}, &Straggler::seconds);
    for (Straggler& s : found) {
        const RankTimes& rank = ranks[size_t(s.rank)];
        s.step_seconds = whole_step(rank);
        s.clock_mhz = rank.clock_mhz;
        s.median_clock_mhz = median_clock;
        if (rank.clock_mhz > 0) s.throttle = throttle_text(uint64_t(rank.throttle));
    }
    return found;
}

std::string console_line(const Straggler& s) {
    std::vector<std::string> ranks;
    for (const int rank : s.group.empty() ? std::vector{s.rank} : s.group) {
        if (ranks.size() == 8) {
            ranks.emplace_back("...");
            break;
        }
        ranks.push_back(std::to_string(rank));
    }
    const std::string who =
        fmt::format("Slow {} {} (host {}): ", ranks.size() > 1 ? "ranks" : "rank", join(ranks, " "), s.host);
    if (!std::isfinite(s.seconds)) return who + gpu_text(s).substr(2);
    return fmt::format("{}{} {:.1f} ms per step longer than others, {:.0f} % of {:.1f} ms{}{}", who,
                       what_of(s), 1e3 * s.seconds, s.percent(), 1e3 * s.step_seconds, trend_text(s),
                       gpu_text(s));
}

std::string json_line(const Straggler& s) {
    Json line = Json::object();
    line.set("step", s.step).set("straggler_phase", name_of(s.phase)).set("straggler_rank", s.rank);
    line.set("straggler_host", s.host).set("straggler_ms", 1e3 * s.seconds);
    line.set("straggler_percent", std::isfinite(s.seconds) ? Json(s.percent()) : Json());
    if (s.seconds_before) line.set("straggler_change_ms", 1e3 * (s.seconds - *s.seconds_before));
    if (!s.group.empty()) line.set("straggler_group", s.group);
    if (s.clock_mhz > 0)
        line.set("straggler_clock_mhz", s.clock_mhz)
            .set("straggler_median_clock_mhz", s.median_clock_mhz)
            .set("straggler_throttle", s.throttle);
    return line.text();
}

Stragglers::Stragglers(const Options& options, const Mesh& mesh, const std::vector<std::string>& hosts,
                       Exec& computation, bool graphs, const GpuMonitor* gpu)
    : options_(options),
      mesh_(mesh.shape()),
      gpu_(gpu),
      computation_(computation),
      graphs_(graphs),
      phases_(Timestamps(computation)),
      numbers_(mesh.world(), sent_numbers),
      hosts_(hosts) {}

Observation Stragglers::observe(int64_t step) {
    const bool seen = computation_.is_synchronous() || (!graphs_ && step % options_.every == 0);
    if (!seen || !begun_) return {};
    phases_.begin_step();
    return computation_.observers.add(phases_);
}

std::vector<Straggler> Stragglers::end_step(int64_t step, bool last, double seconds, double data_seconds) {
    if (!std::exchange(begun_, true)) {
        phases_.restart();
        return {};
    }
    phases_.end_step(seconds, data_seconds);
    std::vector<Straggler> found;
    if (numbers_.is_under_way()) found = evaluate();
    if (step % options_.every == 0) send(step);
    if (last && numbers_.is_under_way())
        for (Straggler& s : evaluate()) found.push_back(std::move(s));
    return found;
}

void Stragglers::send(int64_t step) {
    RankTimes times{.phases = phases_.means(), .step = phases_.step_seconds()};
    if (gpu_) {
        const GpuSample sample = gpu_->sample();
        times.clock_mhz = sample.sm_clock.value_or(0);
        times.throttle = double(sample.throttle_reasons.value_or(0));
    }
    numbers_.begin(packed(times));
    window_end_ = step;
    phases_.restart();
}

std::vector<Straggler> Stragglers::evaluate() {
    const std::span<const double> all = numbers_.finish();
    std::vector<RankTimes> ranks;
    for (size_t at = 0; at < all.size(); at += sent_numbers)
        ranks.push_back(unpacked(all.subspan(at, sent_numbers)));
    if (ranks.size() < 2) return {};
    std::vector<Straggler> found = find_stragglers(mesh_, ranks, options_.percent);
    std::map<std::pair<StepPhase, int>, double> now;
    for (Straggler& s : found) {
        s.step = window_end_;
        s.host = hosts_[size_t(s.rank)];
        const auto before = before_.find({s.phase, s.rank});
        if (before != before_.end()) s.seconds_before = before->second;
        now[{s.phase, s.rank}] = s.seconds;
    }
    before_ = std::move(now);
    return found;
}

}  // namespace coeus
