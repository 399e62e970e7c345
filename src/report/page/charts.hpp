// SPDX-License-Identifier: Apache-2.0
// The plots of a report, before they are drawn: curves, axes and scales.
#pragma once

#include "axis.hpp"
#include "coeus/report/report.hpp"

#include <optional>
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
    std::vector<Dot> logged;  ///< as in metrics.jsonl; of very many, the smallest and largest of each stretch
    std::vector<Dot> smooth;  ///< moving mean; empty if there are few values, or no noise
    bool noisy = false;       ///< a moving mean says something
    size_t values = 0;        ///< in metrics.jsonl
    std::vector<Dot> means;   ///< of very many noisy values, the mean of each stretch
};

/// What steps can be drawn over instead of their numbers.
struct StepPlaces {
    std::string title;               ///< "tokens", "hours of the run"
    std::vector<MetricSeries> runs;  ///< the place of each logged step; empty if the run did not log it
};
/// Tokens and the time of the run, each if a run has logged it.
std::vector<StepPlaces> other_places_of(const std::vector<RunData>& runs);

/// An x axis on a linear scale, and on a log scale if all values are positive.
struct XAxis {
    ChartAxis linear;
    std::optional<ChartAxis> log;
};

/// A later start of a run than the first one.
struct StartMark {
    size_t run = 0, number = 0;  ///< number: 2 for the second start
    double x = 0;                ///< where it begins
};

struct Chart {
    std::string title, unit;  ///< "Loss", "nats per token"
    std::string short_unit;   ///< "GiB"; "" if numbers have no unit
    std::string x_title;      ///< "step"
    ChartAxis x, y;
    std::vector<Curve> curves;
    std::vector<StartMark> starts;
    std::optional<ChartAxis> log_x, log_y;  ///< the axes on a log scale; none if a value is not positive
    /// The x axes of other_places_of(runs). None if a run of the chart has no such places. Empty if the chart
    /// is not over steps.
    std::vector<std::optional<XAxis>> other_x;
};

/// All charts for which a run has values. For several runs also the loss over tokens and over time.
std::vector<Chart> charts_of(const std::vector<RunData>& runs);

/// Number of steps in the window of the moving mean, for this number of values; 1: no moving mean.
size_t mean_window(size_t values);

}  // namespace coeus::report
