// SPDX-License-Identifier: Apache-2.0
#include "fastest.hpp"

#include <algorithm>
#include <limits>

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

}  // namespace coeus::cuda
