// SPDX-License-Identifier: Apache-2.0
// An axis of a plot: the positions of values, and its ticks at round values.
#pragma once

#include <string>
#include <vector>

namespace coeus::report {

enum class Scale { linear, log };

struct ChartAxis {
    double low = 0, high = 1;  ///< low < high; both positive on a log scale
    Scale scale = Scale::linear;
    std::vector<double> ticks;  ///< rising, within [low, high]

    /// 0 at `low`, 1 at `high`.
    double position(double value) const;
};

/// An axis over [low, high] with about `wanted` ticks. Equal ends are moved apart.
ChartAxis make_axis(double low, double high, Scale scale, int wanted);

/// The label of a tick.
std::string tick_text(const ChartAxis& axis, double tick);

/// For tables, six digits at most: "0.5", "3e-4", "12.5k", "1.2M", "3B", "4T".
std::string short_number(double value);

}  // namespace coeus::report
