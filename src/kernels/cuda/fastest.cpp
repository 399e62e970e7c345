// SPDX-License-Identifier: Apache-2.0
#include "fastest.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace coeus::cuda {

namespace {

constexpr int turns = 5;
constexpr double enough_seconds = 0.1, worth_leaving = 0.98;

}  // namespace

int fastest(int candidates, FunctionRef<double(int)> seconds) {
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector<double> best(size_t(candidates), never);
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
            best[size_t(i)] = std::min(best[size_t(i)], took);
            spent += took;
        }
    if (running.empty()) return 0;
    const double least = *std::min_element(best.begin(), best.end());
    const auto good_enough = [&](double time) { return time * worth_leaving <= least; };
    return int(std::find_if(best.begin(), best.end(), good_enough) - best.begin());
}

}  // namespace coeus::cuda
