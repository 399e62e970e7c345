// SPDX-License-Identifier: Apache-2.0
// LrSchedule: warm-up, constant phase and decay of the learning rate. As in torchtitan there is one virtual
// extra step, so that the rate of the last real step is above the minimum. The factor after k optimizer
// steps:
//   k < warmup: (k + 1) / warmup
//   then 1 for `stable` = total + 1 - warmup - decay steps
//   then min + (1 - min) * f(p) with p = (k + 1 - warmup - stable) / decay, where f(p) is
//   linear: 1 - p, sqrt: 1 - sqrt(p), cosine: (1 + cos(pi p)) / 2
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

enum class Decay : uint8_t { linear, sqrt, cosine };

class LrSchedule {
public:
    struct Options {
        int64_t warmup_steps = 0;
        int64_t total_steps = 1;
        /// Fraction of total_steps, rounded half to even, that decays; none: all steps after the warm-up.
        std::optional<double> decay_ratio;
        Decay decay = Decay::linear;
        double min_factor = 0;
    };
    /// Shortens warm-up and decay if they exceed the run, and adds a message about it to `notices`, if that
    /// is not null.
    LrSchedule(const Options& options, std::vector<std::string>* notices);

    /// The factor of the base rate for the step after `steps_taken` steps; the minimum after the end of the
    /// schedule.
    double factor(int64_t steps_taken) const;

private:
    int64_t warmup_, stable_, decay_steps_;
    Decay decay_;
    double min_factor_;
};

}  // namespace coeus
