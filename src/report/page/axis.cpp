// SPDX-License-Identifier: Apache-2.0
#include "axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coeus::report {

namespace {

struct Unit {
    double one, least;  ///< used for values of at least `least`
    const char* name;
};
constexpr Unit units[] = {{1e12, 1e12, "T"}, {1e9, 1e9, "B"}, {1e6, 1e6, "M"}, {1e3, 1e4, "k"}};

// Multiples of a round step, which is 1, 2, 2.5 or 5 times a power of ten.
std::vector<double> linear_ticks(double low, double high, int wanted) {
    const double rough = (high - low) / wanted, unit = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * unit;
    for (const double multiple : {5.0, 2.5, 2.0, 1.0})
        if (multiple * unit >= rough * (1 - 1e-9)) step = multiple * unit;
    std::vector<double> ticks;
    const double last = std::floor(high / step + 1e-9);
    for (double i = std::ceil(low / step - 1e-9); i <= last; ++i)
        ticks.push_back(i * step + 0.0);  // never -0
    return ticks;
}

// The largest of three sets that does not have too many ticks: 1 to 9 times each power of ten; 1, 2 and 5
// times; 1.
std::vector<double> log_ticks(double low, double high, int wanted) {
    const int first = int(std::floor(std::log10(low))), last = int(std::ceil(std::log10(high)));
    const std::vector<std::vector<double>> sets = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 5}, {1}};
    std::vector<double> ticks;
    for (const std::vector<double>& multiples : sets) {
        ticks.clear();
        for (int power = first; power <= last; ++power)
            for (const double multiple : multiples)
                if (const double tick = multiple * std::pow(10, power);
                    tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9))
                    ticks.push_back(tick);
        if (int(ticks.size()) <= wanted + 2) break;
    }
    return ticks;
}

}  // namespace

double ChartAxis::position(double value) const {
    if (scale == Scale::log) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
    return (value - low) / (high - low);
}

ChartAxis make_axis(double low, double high, Scale scale, int wanted) {
    // the ends are nearly equal: there would be no numbers for ticks between them
    if (!(high - low > 1e-12 * std::max(std::fabs(low), std::fabs(high)))) {
        const double apart = low == 0 ? 1 : std::fabs(low) / 10;
        low -= apart;
        high += apart;
    }
    ChartAxis axis = {low, high, scale, {}};
    if (scale == Scale::log) axis.ticks = log_ticks(low, high, wanted);
    // within less than a decade there may be too few logarithmic ticks
    if (axis.ticks.size() < 3) axis.ticks = linear_ticks(low, high, wanted);
    return axis;
}

std::string tick_text(const ChartAxis& axis, double tick) {
    // one unit for all ticks of an axis: 5k and 10k
    for (const Unit& unit : units)
        if (axis.scale == Scale::linear && axis.high >= unit.least && tick != 0)
            return fmt::format("{:.6g}{}", tick / unit.one, unit.name);
    return short_number(tick);
}

std::string short_number(double value) {
    const double size = std::fabs(value);
    for (const Unit& unit : units)
        if (size >= unit.least) return fmt::format("{:.6g}{}", value / unit.one, unit.name);
    std::string text = fmt::format("{:.6g}", value);
    if (size >= 1e-3 || value == 0) return text;
    text = fmt::format("{:.3e}", value);  // 3.000e-04 -> 3e-4
    std::string digits = text.substr(0, text.find('e'));
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.ends_with('.')) digits.pop_back();
    return fmt::format("{}e{}", digits, std::stoi(text.substr(text.find('e') + 1)));
}

}  // namespace coeus::report
