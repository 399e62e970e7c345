// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/rope_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coeus {

namespace {

// What the frequencies of a table depend on besides the scaling.
struct Rows {
    int64_t width, length;
    double theta;

    double frequency(int64_t j) const { return std::pow(theta, -2.0 * double(j) / double(width)); }
};

// The scaled frequency of pair j.
double scaled(const std::monostate&, const Rows& rows, int64_t j) {
    return rows.frequency(j);
}
double scaled(const LinearScaling& s, const Rows& rows, int64_t j) {
    return rows.frequency(j) / s.factor;
}
double scaled(const DynamicScaling& s, const Rows& rows, int64_t j) {
    // transformers' order of operations; one pair alone has frequency 1, whatever the base is
    if (rows.width == 2) return 1;
    const double length = std::max(double(rows.length), s.original_positions);
    const double growth = s.factor * length / s.original_positions - (s.factor - 1);
    Rows grown = rows;
    grown.theta *= std::pow(growth, double(rows.width) / double(rows.width - 2));
    return grown.frequency(j);
}
double scaled(const Llama3Scaling& s, const Rows& rows, int64_t j) {
    const double f = rows.frequency(j);
    const double turns = s.original_positions * f / (2 * std::numbers::pi);  // original / wavelength
    if (turns < s.low_frequency) return f / s.factor;
    if (turns > s.high_frequency || s.high_frequency == s.low_frequency) return f;
    const double part = (turns - s.low_frequency) / (s.high_frequency - s.low_frequency);
    return (1 - part) * f / s.factor + part * f;
}
double scaled(const YarnScaling& s, const Rows& rows, int64_t j) {
    // the number, not necessarily whole, of the pair that turns so many times within the original positions
    const auto pair_with = [&](double turns) {
        return double(rows.width) * std::log(s.original_positions / (2 * std::numbers::pi * turns)) /
               (2 * std::log(rows.theta));
    };
    double first = pair_with(s.beta_fast), last = pair_with(s.beta_slow);
    if (s.truncate) {
        first = std::floor(first);
        last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, double(rows.width - 1));
    if (first == last) last += 0.001;
    const double f = rows.frequency(j), ramp = std::clamp((double(j) - first) / (last - first), 0.0, 1.0);
    return ramp * f / s.factor + (1 - ramp) * f;
}
double scaled(const LongRopeScaling& s, const Rows& rows, int64_t j) {
    const bool is_long = double(rows.length) > s.original_positions;
    return rows.frequency(j) / (is_long ? s.long_factor : s.short_factor)[size_t(j)];
}

double magnitude(const YarnScaling& s) {
    if (s.attention_factor > 0) return s.attention_factor;
    if (s.mscale > 0 && s.mscale_all_dim > 0) return s.magnitude(s.mscale) / s.magnitude(s.mscale_all_dim);
    return s.magnitude(1);
}
double magnitude(const LongRopeScaling& s) {
    if (s.attention_factor > 0) return s.attention_factor;
    return s.factor <= 1 ? 1 : std::sqrt(1 + std::log(s.factor) / std::log(s.original_positions));
}
template <class Scaling>
double magnitude(const Scaling&) {
    return 1;
}

}  // namespace

std::vector<double> rope_frequencies(int64_t width, double theta, const RopeScaling& scaling,
                                     int64_t length) {
    const Rows rows = {width, length, theta};
    std::vector<double> frequencies;
    for (int64_t j = 0; j < width / 2; ++j)
        frequencies.push_back(std::visit([&](const auto& kind) { return scaled(kind, rows, j); }, scaling));
    return frequencies;
}

double YarnScaling::magnitude(double x) const {
    return factor <= 1 ? 1 : 0.1 * x * std::log(factor) + 1;
}

double rope_magnitude(const RopeScaling& scaling) {
    return std::visit([](const auto& kind) { return magnitude(kind); }, scaling);
}

}  // namespace coeus
