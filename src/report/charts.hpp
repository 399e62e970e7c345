// SPDX-License-Identifier: Apache-2.0
// What the plots of a report show, before anything is drawn: which values over what, at which scale.
#pragma once

#include "axis.hpp"
#include "coeus/report/report.hpp"

#include <string>
#include <vector>

namespace coeus::report {

struct Dot {
    double x, y;
};

/// The values of one run in one chart.
struct Curve {
    size_t run = 0;
    bool validation = false;  ///< drawn as marks
    std::vector<Dot> logged;  ///< as they stand in metrics.jsonl; of many, each stretch's least and largest
    std::vector<Dot> smooth;  ///< moving mean; empty where there are few values, or no noise
};

struct Chart {
    std::string title, unit;  ///< "Loss", "nats per token"
    std::string short_unit;   ///< "GiB"; "" where numbers stand alone
    std::string x_title;      ///< "step"
    ChartAxis x, y;
    std::vector<Curve> curves;
};

/// Those for which a run has values. Of several runs also the loss over tokens and over time.
std::vector<Chart> charts_of(const std::vector<RunData>& runs);

/// Steps over which a moving mean goes, for this number of values; 1: none is made.
size_t mean_window(size_t values);

}  // namespace coeus::report
