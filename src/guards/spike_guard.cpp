// SPDX-License-Identifier: Apache-2.0
#include "coeus/guards/spike_guard.hpp"

#include <algorithm>
#include <cmath>

namespace coeus {

namespace {

constexpr double least_deviation = 0.01;  // as a fraction of the mean

SpikeGuard::Spike spike_of(const char* what, double value, const SpikeWindow& window) {
    const double mean = window.mean(), deviation = window.deviation();
    return {what, value, mean, deviation, (value - mean) / deviation};
}

}  // namespace

void SpikeWindow::add(double value) {
    if (is_full()) values_.erase(values_.begin());
    values_.push_back(value);
}

void SpikeWindow::assign(std::vector<double> values) {
    const size_t kept = std::min(values.size(), size_);
    values_.assign(values.end() - std::ptrdiff_t(kept), values.end());
}

// Mean and deviation are computed from all values in their order, so that a resumed run has the same bits.
double SpikeWindow::mean() const {
    double sum = 0;
    for (const double value : values_) sum += value;
    return sum / double(values_.size());
}

double SpikeWindow::deviation() const {
    const double centre = mean();
    double squares = 0;
    for (const double value : values_) squares += (value - centre) * (value - centre);
    return std::max(std::sqrt(squares / double(values_.size())), least_deviation * std::fabs(centre));
}

StepLimits SpikeGuard::limits() const {
    if (!loss_.is_full()) return {};
    return {.loss = loss_.mean() + z_score_ * loss_.deviation(),
            .norm = norm_.mean() + z_score_ * norm_.deviation()};
}

void SpikeGuard::accept(double loss, double norm) {
    loss_.add(loss);
    norm_.add(norm);
}

SpikeGuard::Spike SpikeGuard::spike(double loss, double norm) const {
    const Spike of_loss = spike_of("loss", loss, loss_), of_norm = spike_of("gradient norm", norm, norm_);
    return of_loss.z >= of_norm.z ? of_loss : of_norm;
}

void SpikeGuard::assign(std::vector<double> losses, std::vector<double> norms) {
    loss_.assign(std::move(losses));
    norm_.assign(std::move(norms));
}

}  // namespace coeus
