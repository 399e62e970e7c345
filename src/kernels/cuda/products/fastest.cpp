// SPDX-License-Identifier: Apache-2.0
#include "fastest.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace coeus::cuda {

namespace {

constexpr int turns = 5;
constexpr double enough_seconds = 0.1, worth_leaving = 0.98;
constexpr double never = std::numeric_limits<double>::infinity();

/// The first candidate that no other one is 2 % faster than.
int first_of_the_best(const std::vector<double>& times) {
    const double least = *std::min_element(times.begin(), times.end());
    const auto good_enough = [&](double time) { return time * worth_leaving <= least; };
    return int(std::find_if(times.begin(), times.end(), good_enough) - times.begin());
}

}  // namespace

std::vector<double> least_seconds(int candidates, FunctionRef<double(int)> seconds) {
    std::vector<double> least(size_t(candidates), never);
    std::vector<int> running;
    double spent = 0;
    for (int i = 0; i < candidates; ++i)
        if (const double took = seconds(i); took < never) {
            running.push_back(i);
            spent += took;
        }
    for (int turn = 0; turn < turns && (turn == 0 || spent < enough_seconds); ++turn)
        for (const int i : running) {
            const double took = seconds(i);
            least[size_t(i)] = std::min(least[size_t(i)], took);
            spent += took;
        }
    return least;
}

Fastest fastest(int candidates, FunctionRef<double(int)> seconds) {
    const std::vector<double> times = least_seconds(candidates, seconds);
    const int best = first_of_the_best(times);
    std::vector<double> others = times;
    others[size_t(best)] = never;
    const int second = int(std::min_element(others.begin(), others.end()) - others.begin());
    if (!(others[size_t(second)] < never)) return {best, times[size_t(best)]};
    const int finalists[] = {std::min(best, second), std::max(best, second)};
    const std::vector<double> last = least_seconds(2, [&](int i) { return seconds(finalists[i]); });
    const int winner = first_of_the_best(last);
    return {finalists[winner], last[size_t(winner)]};
}

Steadiest steadiest(int candidates, int kept, double turn_seconds, FunctionRef<double(int)> seconds,
                    FunctionRef<double(int, int)> mean) {
    constexpr size_t finalists = 4;
    constexpr int long_turns = 2;
    constexpr double heating_turns = 3, most_runs = 1e6;
    const std::vector<double> times = least_seconds(candidates, seconds);
    const int first = first_of_the_best(times);
    Steadiest found = {.of_short_turns = first,
                       .shortest_turn = times[size_t(first)],
                       .number = first,
                       .means = std::vector<double>(times.size(), never)};
    if (!(found.shortest_turn < never)) return found;
    std::vector<int> order(times.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int i) { return times[size_t(i)]; });
    std::vector<int> last(order.begin(), order.begin() + std::ptrdiff_t(std::min(finalists, order.size())));
    for (const int other : {first, kept})
        if (other >= 0 && std::ranges::find(last, other) == last.end()) last.push_back(other);
    std::erase_if(last, [&](int i) { return !(times[size_t(i)] < never); });
    std::ranges::sort(last);
    const auto mean_of = [&](int i, double long_seconds) {
        return mean(i, int(std::clamp(long_seconds / times[size_t(i)], 1.0, most_runs)));
    };
    mean_of(first, heating_turns * turn_seconds);
    std::vector<double> sums(times.size(), 0);
    for (int turn = 0; turn < long_turns; ++turn)
        for (const int i : last) sums[size_t(i)] += mean_of(i, turn_seconds);
    for (const int i : last) found.means[size_t(i)] = sums[size_t(i)] / long_turns;
    found.number = int(std::ranges::min_element(found.means) - found.means.begin());
    return found;
}

}  // namespace coeus::cuda
