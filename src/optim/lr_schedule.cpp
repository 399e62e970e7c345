// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/lr_schedule.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace coeus {

namespace {

// What is left of the rate if the part p of the decay is done.
double decayed(Decay decay, double p) {
    switch (decay) {
        case Decay::linear: return 1 - p;
        case Decay::sqrt: return 1 - std::sqrt(p);
        case Decay::cosine: return 0.5 * (1 + std::cos(std::numbers::pi * p));
    }
    throw LogicError("a decay has no formula");
}

}  // namespace

LrSchedule::LrSchedule(const Options& options, std::vector<std::string>* notices)
    : warmup_(options.warmup_steps), decay_(options.decay), min_factor_(options.min_factor) {
    const int64_t total = options.total_steps;
    if (warmup_ > total) {
        if (notices)
            notices->push_back(fmt::format("lr_scheduler.warmup_steps = {} is longer than the run: cut to {}",
                                           warmup_, total));
        warmup_ = total;
    }
    decay_steps_ = total - warmup_;
    if (options.decay_ratio) {
        decay_steps_ =
            std::llrint(double(total) * *options.decay_ratio);  // half to even, as the default rounding mode
        if (warmup_ + decay_steps_ > total) {
            if (notices)
                notices->push_back(
                    fmt::format("warm-up ({}) and decay ({}) together exceed the {} steps: decay cut to {}",
                                warmup_, decay_steps_, total, total - warmup_));
            decay_steps_ = total - warmup_;
        }
    }
    stable_ = total + 1 - warmup_ - decay_steps_;
}

double LrSchedule::factor(int64_t steps_taken) const {
    const int64_t k = steps_taken;
    if (k < warmup_) return double(k + 1) / double(warmup_);
    if (k < warmup_ + stable_ || decay_steps_ == 0) return 1;
    const double p = std::min(1.0, double(k + 1 - warmup_ - stable_) / double(decay_steps_));
    const double f = decayed(decay_, p);
    return min_factor_ + (1 - min_factor_) * f;
}

}  // namespace coeus
