// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/lr_schedule.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

std::vector<double> factors(const LrSchedule::Options& options, int64_t steps) {
    const LrSchedule schedule(options, nullptr);
    std::vector<double> f;
    for (int64_t k = 0; k < steps; ++k) f.push_back(schedule.factor(k));
    return f;
}

std::vector<std::string> notices_of(const LrSchedule::Options& options) {
    std::vector<std::string> notices;
    const LrSchedule schedule(options, &notices);
    return notices;
}

}  // namespace

TEST_CASE("learning rate: warm-up, one virtual step, linear decay") {
    CHECK(factors({.warmup_steps = 2, .total_steps = 10}, 10) ==
          std::vector<double>{0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125});
    CHECK(notices_of({.warmup_steps = 2, .total_steps = 10}).empty());
}

TEST_CASE("learning rate: the three decays reach the minimum one step after the end") {
    for (const Decay decay : {Decay::linear, Decay::sqrt, Decay::cosine}) {
        CAPTURE(int(decay));
        const LrSchedule::Options o = {
            .warmup_steps = 0, .total_steps = 8, .decay_ratio = 0.5, .decay = decay, .min_factor = 0.2};
        const std::vector<double> f = factors(o, 12);
        for (size_t k = 0; k <= 4; ++k) CHECK(f[k] == 1);  // 8 + 1 - 4 stable steps
        for (size_t k = 5; k < 8; ++k) {
            CHECK(f[k] < f[k - 1]);
            CHECK(f[k] > 0.2);
        }
        for (size_t k = 8; k < 12; ++k) CHECK(close(f[k], 0.2, 1e-15));
        const double half = decay == Decay::linear ? 0.5 : decay == Decay::sqrt ? 1 - std::sqrt(0.5) : 0.5;
        CHECK(close(f[6], 0.2 + 0.8 * half, 1e-15));
    }
}

TEST_CASE("learning rate: a ratio of zero is a constant rate, also after the end") {
    for (const double f : factors({.warmup_steps = 0, .total_steps = 3, .decay_ratio = 0.0}, 9))
        CHECK(f == 1);
}

TEST_CASE("learning rate: phases longer than the run are shortened, with a message") {
    const LrSchedule::Options warm = {.warmup_steps = 200, .total_steps = 4};
    CHECK(factors(warm, 4) == std::vector<double>{0.25, 0.5, 0.75, 1});
    CHECK(notices_of(warm) ==
          std::vector<std::string>{"lr_scheduler.warmup_steps = 200 is longer than the run: cut to 4"});

    const LrSchedule::Options both = {.warmup_steps = 3, .total_steps = 10, .decay_ratio = 0.9};
    CHECK(notices_of(both) ==
          std::vector<std::string>{"warm-up (3) and decay (9) together exceed the 10 steps: decay cut to 7"});
    CHECK(factors(both, 10) == factors({.warmup_steps = 3, .total_steps = 10}, 10));
    CHECK(notices_of({.warmup_steps = 20, .total_steps = 10, .decay_ratio = 0.5}).size() == 2);
}
