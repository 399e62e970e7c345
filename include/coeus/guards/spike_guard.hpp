// SPDX-License-Identifier: Apache-2.0
// SpikeGuard: detects spikes of the loss and the gradient norm by their z-score over a window of accepted
// steps:
//   limit = mean + z_score * deviation   over the last `window` accepted steps; no limit before so many
// Refused steps do not enter the window, so that a spike does not raise the limits. The deviation is at least
// 1% of the mean: if all steps are nearly equal it would be near 0, and rounding errors would be spikes.
#pragma once

#include "coeus/engine/engine.hpp"

#include <vector>

namespace coeus {

/// The last values of a quantity, with their mean and standard deviation.
class SpikeWindow {
public:
    explicit SpikeWindow(int64_t size) : size_(size_t(size)) { values_.reserve(size_); }

    void add(double value);
    bool is_full() const { return values_.size() == size_; }
    /// Oldest first.
    const std::vector<double>& values() const { return values_; }
    /// Replaces the values, oldest first; if there are more than the window holds, the newest are kept.
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

    /// Limits of the next step.
    StepLimits limits() const;
    void accept(double loss, double norm);
    /// Why a step was refused.
    struct Spike {
        const char* what;  ///< "loss" or "gradient norm", whichever has the larger z-score
        double value, mean, deviation, z;
    };
    Spike spike(double loss, double norm) const;

    double z_score() const { return z_score_; }
    const SpikeWindow& losses() const { return loss_; }
    const SpikeWindow& norms() const { return norm_; }
    /// Replaces the windows by these values, oldest first.
    void assign(std::vector<double> losses, std::vector<double> norms);

private:
    double z_score_;
    SpikeWindow loss_, norm_;
};

}  // namespace coeus
