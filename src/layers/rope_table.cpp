// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/rope_table.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace coeus {

namespace {

// The scaled frequency of pair j, from f.
double scaled(const std::monostate&, double f, int64_t, int64_t, double) {
    return f;
}
double scaled(const Llama3Scaling& s, double f, int64_t, int64_t, double) {
    const double turns = s.original_positions * f / (2 * std::numbers::pi);  // original / wavelength
    if (turns < s.low_frequency) return f / s.factor;
    if (turns > s.high_frequency || s.high_frequency == s.low_frequency) return f;
    const double part = (turns - s.low_frequency) / (s.high_frequency - s.low_frequency);
    return (1 - part) * f / s.factor + part * f;
}
double scaled(const YarnScaling& s, double f, int64_t j, int64_t width, double theta) {
    // the number, not necessarily whole, of the pair that turns so many times within the original positions
    const auto pair_with = [&](double turns) {
        return double(width) * std::log(s.original_positions / (2 * std::numbers::pi * turns)) /
               (2 * std::log(theta));
    };
    double first = pair_with(s.beta_fast), last = pair_with(s.beta_slow);
    if (s.truncate) {
        first = std::floor(first);
        last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, double(width - 1));
    if (first == last) last += 0.001;
    const double ramp = std::clamp((double(j) - first) / (last - first), 0.0, 1.0);
    return ramp * f / s.factor + (1 - ramp) * f;
}

}  // namespace

std::vector<double> rope_frequencies(int64_t width, double theta, const RopeScaling& scaling) {
    std::vector<double> frequencies;
    for (int64_t j = 0; j < width / 2; ++j) {
        const double f = std::pow(theta, -2.0 * double(j) / double(width));
        frequencies.push_back(
            std::visit([&](const auto& kind) { return scaled(kind, f, j, width, theta); }, scaling));
    }
    return frequencies;
}

double YarnScaling::magnitude(double x) const {
    return factor <= 1 ? 1 : 0.1 * x * std::log(factor) + 1;
}

double rope_magnitude(const RopeScaling& scaling) {
    const auto* yarn = std::get_if<YarnScaling>(&scaling);
    if (!yarn) return 1;
    if (yarn->attention_factor > 0) return yarn->attention_factor;
    if (yarn->mscale > 0 && yarn->mscale_all_dim > 0)
        return yarn->magnitude(yarn->mscale) / yarn->magnitude(yarn->mscale_all_dim);
    return yarn->magnitude(1);
}

RopeTable::RopeTable(int64_t positions, int64_t width, double theta, const RopeScaling& scaling, Dtype dtype)
    : frequencies_(rope_frequencies(width, theta, scaling)), magnitude_(rope_magnitude(scaling)) {
    table_.view = Tensor(nullptr, dtype, {positions, width});
}

void RopeTable::allocate(const Device& device) {
    const int64_t positions = table_.view.rows(), width = table_.view.cols();
    table_ = OwnedTensor(table_.view.dtype, table_.view.shape, "RoPE table");
    for (int64_t p = 0; p < positions; ++p) {
        for (int64_t j = 0; j < width / 2; ++j) {
            const double angle = double(p) * frequencies_[size_t(j)];
            set_element(table_, p * width + 2 * j, magnitude_ * std::cos(angle));
            set_element(table_, p * width + 2 * j + 1, magnitude_ * std::sin(angle));
        }
    }
    table_ = moved_to(device, std::move(table_));
}

}  // namespace coeus
