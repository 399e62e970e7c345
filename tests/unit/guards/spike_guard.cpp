// SPDX-License-Identifier: Apache-2.0
// The definition of a spike, and the part of the guard's state that a checkpoint keeps.
#include "coeus/guards/spike_guard.hpp"

#include "coeus/guards/guards.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const std::vector<std::string> one_host = {"h"};

SpikeGuard filled(const std::vector<double>& losses, const std::vector<double>& norms, double z_score = 3) {
    SpikeGuard guard(int64_t(losses.size()), z_score);
    for (size_t i = 0; i < losses.size(); ++i) guard.accept(losses[i], norms[i]);
    return guard;
}

}  // namespace

TEST_CASE("spikes: no limits until the window is full") {
    SpikeGuard guard(3, 2);
    for (int i = 0; i < 3; ++i) {
        CHECK(guard.limits().loss == infinity);
        CHECK(guard.limits().norm == infinity);
        guard.accept(3 + i, 1);
    }
    CHECK(guard.limits().loss < infinity);
    CHECK(guard.limits().norm < infinity);
}

TEST_CASE("spikes: limits are a number of deviations above the mean of the last steps") {
    const SpikeGuard guard = filled({100, 1, 2, 3, 4}, {100, 2, 2, 4, 4});
    SpikeGuard last = filled({1, 2, 3, 4}, {2, 2, 4, 4});
    CHECK(relatively_close(last.limits().loss, 2.5 + 3 * std::sqrt(1.25), 1e-14));
    CHECK(relatively_close(last.limits().norm, 3 + 3 * 1.0, 1e-14));
    CHECK(guard.limits().loss > 100);
    // the oldest value leaves the window
    last.accept(5, 4);
    CHECK(last.losses().values() == std::vector<double>{2, 3, 4, 5});
    CHECK(relatively_close(last.limits().loss, 3.5 + 3 * std::sqrt(1.25), 1e-14));
}

TEST_CASE("spikes: of loss and norm, the one that deviates more is reported") {
    const SpikeGuard guard = filled({1, 2, 3, 4}, {2, 2, 4, 4});
    const SpikeGuard::Spike loss = guard.spike(20, 7), norm = guard.spike(3, 70);
    CHECK(std::string(loss.what) == "loss");
    CHECK(relatively_close(loss.z, 17.5 / std::sqrt(1.25), 1e-14));
    CHECK(loss.value == 20);
    CHECK(std::string(norm.what) == "gradient norm");
    CHECK(relatively_close(norm.z, 67, 1e-14));
}

TEST_CASE("spikes: almost equal steps have a deviation larger than rounding") {
    const double loss = 0.1 + 0.2;
    const SpikeGuard same = filled({loss, loss, loss}, {0, 0, 0}, 6);
    CHECK(same.losses().deviation() == 0.01 * same.losses().mean());
    CHECK(same.limits().loss > loss * 1.05);
    // a norm of 0, as in a memorised or frozen model, is not a spike
    CHECK(same.limits().norm == 0);
    const SpikeGuard nearly = filled({loss, std::nextafter(loss, 1), std::nextafter(loss, 0)}, {1, 1, 1}, 1);
    CHECK(nearly.limits().loss > std::nextafter(loss, 1));
    // losses below 0 have a minimal deviation too
    CHECK(filled({-2, -2}, {1, 1}, 1).limits().loss > -2);
}

TEST_CASE("spikes: a stored window gives the same bits, a shorter one keeps its newest steps") {
    std::vector<double> losses, norms;
    for (int i = 0; i < 7; ++i) losses.push_back(1 / (3.0 + i)), norms.push_back(std::sqrt(2.0 + i));
    SpikeGuard there = filled(losses, norms), here(7, 3), shorter(3, 3), longer(9, 3);
    here.assign(there.losses().values(), there.norms().values());
    shorter.assign(losses, norms);
    longer.assign(losses, norms);
    for (int i = 0; i < 5; ++i) {
        CHECK(here.limits().loss == there.limits().loss);
        CHECK(here.limits().norm == there.limits().norm);
        there.accept(0.3 + i, 0.7);
        here.accept(0.3 + i, 0.7);
    }
    CHECK(shorter.losses().values() == std::vector<double>(losses.end() - 3, losses.end()));
    CHECK(longer.limits().loss == infinity);
}

TEST_CASE("guards: the state for decisions is restored from a checkpoint") {
    Engine engine(tiny_config(),
                  {.training = {.sequences = 1, .seq_len = 5}, .limits = true, .snapshot = true});
    engine.allocate();
    engine.model().parameters().initialise(5, 1);
    Config::Guards options;
    CHECK(Guards(options, engine, one_host).record() == "");
    options.loss_spike = "rewind";
    options.spike_window = 2;
    options.spike_patience = 2;
    Guards guards(options, engine, one_host);
    RunPlace place = {.step = 10, .sample = 80, .tokens_seen = 800};
    guards.begin(place);
    for (const double loss : {0.1, 0.2}) guards.accept(loss, loss / 3);
    const auto beyond = [&](RunPlace at) {
        at.step += 2, at.sample += 16, at.tokens_seen += 160;
        return at;
    };
    RunPlace there = beyond(place);
    CHECK_THAT(guards.pass_over(there, 8, 9, 0.1), Contains("\"first_sample\":80,\"last_sample\":103"));
    CHECK(there.step == 10);
    CHECK(there.sample == 104);
    CHECK(there.tokens_seen == 800);
    CHECK(guards.samples_passed_over() == 24);
    Guards again(options, engine, one_host);
    again.resume(guards.record());
    again.begin(there);
    CHECK(again.record() == guards.record());
    for (Guards* one : {&guards, &again}) {
        // the window is that of the snapshot: empty
        CHECK(one->limits().loss == infinity);
        for (const double loss : {0.3, 0.2}) one->accept(loss, 1);
        RunPlace at = beyond(there);
        one->pass_over(at, 8, 9, 1);
        CHECK(at.sample == 128);
        CHECK(one->samples_passed_over() == 48);
        for (const double loss : {0.3, 0.2}) one->accept(loss, 1);
        RunPlace third = beyond(at);
        CHECK_THROWS_WITH(one->pass_over(third, 8, 9, 1), Contains("It came after 2 rewinds"));
        // after a new snapshot, patience counts from 0
        RunPlace on = beyond(at);
        CHECK(one->look_after(on, true) == "");
        one->pass_over(on, 8, 9, 1);
        CHECK(on.step == at.step + 2);
    }
    CHECK(again.record() == guards.record());
    // a deck without the guard keeps the count of samples, which determines the data position
    Guards off(Config::Guards(), engine, one_host);
    off.resume(guards.record());
    CHECK(off.samples_passed_over() == guards.samples_passed_over());
    CHECK(off.limits().loss == infinity);
    CHECK_FALSE(off.record().empty());
    CHECK_THROWS_AS(off.resume("{\"loss\": 3}"), ConfigError);
}
