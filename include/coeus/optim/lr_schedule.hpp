// SPDX-License-Identifier: Apache-2.0
// LrSchedule: warm-up, constant, decay, as torchtitan's with its one virtual extra step, so that the last
// real step's rate is above the minimum. Factors for k optimizer steps already taken:
//   k < warmup: (k + 1) / warmup;   then 1 for total + 1 - warmup - decay steps;
//   then with p = (k + 1 - warmup - stable) / decay:  min + (1 - min) * {linear: 1 - p, sqrt: 1 - sqrt(p),
//   cosine: (1 + cos(pi p)) / 2}
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
        std::optional<double>
            decay_ratio;  ///< of total_steps, rounded half to even; none: all after the warm-up
        Decay decay = Decay::linear;
        double min_factor = 0;
    };
    /// Cuts warm-up and decay to the run where they exceed it, and says so in `notices`.
    LrSchedule(const Options& options, std::vector<std::string>* notices);

    /// Of the base rate, for the step after `steps_taken`; the minimum beyond the schedule's end.
    double factor(int64_t steps_taken) const;

private:
    int64_t warmup_, stable_, decay_steps_;
    Decay decay_;
    double min_factor_;
};

}  // namespace coeus
