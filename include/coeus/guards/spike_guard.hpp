// SPDX-License-Identifier: Apache-2.0
// SpikeGuard: which loss or gradient norm is a spike, by its z-score over a window of accepted steps:
//   limit = mean + z_score * deviation,  of the last `window` accepted steps, none until these are there
// Refused steps do not enter the window, so that a spike does not raise the limits. Steps that hardly differ
// have a deviation near 0, which rounding would exceed: it counts as 1% of the mean at least.
#pragma once

#include "coeus/engine/engine.hpp"

#include <vector>

namespace coeus {

/// The last values of a quantity, and what they say is usual.
class SpikeWindow {
public:
    explicit SpikeWindow(int64_t size) : size_(size_t(size)) { values_.reserve(size_); }

    void add(double value);
    bool is_full() const { return values_.size() == size_; }
    /// Oldest first.
    const std::vector<double>& values() const { return values_; }
    /// The newest of them, where there are more than the window holds.
    void assign(std::vector<double> values);
    double mean() const;
    /// Square root of the mean squared distance from the mean, at least 1% of the mean.
    double deviation() const;

private:
    size_t size_;
    std::vector<double> values_;
};

class SpikeGuard {
public:
    SpikeGuard(int64_t window, double z_score) : z_score_(z_score), loss_(window), norm_(window) {}

    /// For the next step.
    StepLimits limits() const;
    void accept(double loss, double norm);
    /// Why a step was refused, in words and numbers.
    struct Spike {
        const char* what;  ///< "loss" or "gradient norm": which is further from what is usual
        double value, mean, deviation, z;
    };
    Spike spike(double loss, double norm) const;

    double z_score() const { return z_score_; }
    const SpikeWindow& losses() const { return loss_; }
    const SpikeWindow& norms() const { return norm_; }
    /// As accept() of each.
    void assign(std::vector<double> losses, std::vector<double> norms);

private:
    double z_score_;
    SpikeWindow loss_, norm_;
};

}  // namespace coeus
