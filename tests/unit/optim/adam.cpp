// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW against the formulas, written out in double; clipping; gradients that are not finite.
#include "coeus/optim/grad_norm.hpp"
#include "coeus/optim/param_groups.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::test;

namespace {

const StateTypes f64 = {Dtype::f64, Dtype::f64};

// One parameter of one column with memory, an Exec for kernels, and the scalars of a step.
struct Fixture {
    Parameters parameters;
    Storage& storage;
    Exec exec;
    StepScalars scalars;

    Fixture(const StateTypes& types, int64_t count, bool trainable = true)
        : parameters(types),
          storage(parameters.add(
              {.name = "w", .shape = {count, 1}, .init = Init::normal(1), .trainable = trainable})) {
        exec.workspace = Arena(1 << 16, "workspace");
        ParamGroups({}).attach(parameters);
        parameters.allocate(true);
        parameters.initialise(1, 1);
        parameters.refresh_compute(exec, cpu_kernels());
    }
    void set_gradient(const std::vector<double>& g) {
        for (size_t i = 0; i < g.size(); ++i) set_element(storage.g, int64_t(i), g[i]);
    }
    void step(const ParamGroups& adam, uint64_t number, double rate, double max_norm, double loss = 1) {
        scalars = adam.begin_step(number, rate, 1);
        scalars.loss = loss;
        measure_norm(exec, cpu_kernels(), parameters, scalars, max_norm);
        adam.update(exec, cpu_kernels(), parameters, scalars);
    }
    std::vector<std::vector<double>> state() const {
        return {values(storage.master), values(storage.w), values(exp_avg(storage)),
                values(exp_avg_sq(storage))};
    }
};

}  // namespace

TEST_CASE("a step begins with its number, rate, bias corrections and loss scale, and nothing else") {
    const ParamGroups adam({.beta1 = 0.9, .beta2 = 0.99});
    StepScalars scalars;
    scalars.loss = scalars.squared_norm = scalars.grad_norm = 7;
    scalars.clip = 0.5;
    scalars.refusals = 1;
    scalars = adam.begin_step(3, 1e-3, 250);
    CHECK(scalars.step == 3);
    CHECK(scalars.learning_rate == 1e-3);
    CHECK(scalars.groups[0].learning_rate == 1e-3);
    CHECK(relatively_close(scalars.groups[0].bias_correction1, 1 - 0.729, 1e-14));
    CHECK(relatively_close(scalars.groups[0].bias_correction2, 1 - 0.970299, 1e-14));
    CHECK(scalars.loss_scale == 1.0 / 250);
    CHECK(scalars.loss == 0);
    CHECK(scalars.squared_norm == 0);
    CHECK(scalars.grad_norm == 0);
    CHECK(scalars.clip == 1);
    CHECK(scalars.refusals == 0);
    CHECK_THROWS_WITH(adam.begin_step(3, 1e-3, 0), Catch::Contains("a step without valid tokens"));
    CHECK_THROWS_WITH(adam.begin_step(0, 1e-3, 1), Catch::Contains("steps count from 1"));
}

TEST_CASE("updates follow the formulas, with and without decoupled decay, clipped and not") {
    for (const bool decoupled : {true, false})
        for (const double max_norm : {0.0, 1.0, 100.0}) {
            CAPTURE(decoupled, max_norm);
            const OptimizerOptions o = {.name = decoupled ? "AdamW" : "Adam",
                                        .beta1 = 0.8,
                                        .beta2 = 0.95,
                                        .eps = 1e-3,
                                        .weight_decay = 0.2};
            const ParamGroups adam(o);
            Fixture f(f64, 5);
            std::vector<double> w = values(f.storage.master), m(5), v(5);
            for (uint64_t t = 1; t <= 4; ++t) {
                std::vector<double> g;
                for (size_t i = 0; i < 5; ++i) g.push_back(std::sin(double(i + 5 * t)));
                double norm = 0;
                for (const double x : g) norm += x * x;
                norm = std::sqrt(norm);
                const double rate = 0.1 / double(t);
                f.set_gradient(g);
                f.step(adam, t, rate, max_norm);
                CHECK(relatively_close(f.scalars.grad_norm, norm, 1e-14));
                const double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1;
                CHECK(relatively_close(f.scalars.clip, clip, 1e-14));
                CHECK((clip < 1) == (max_norm == 1.0));
                for (size_t i = 0; i < 5; ++i) {
                    double d = clip * g[i];
                    if (!decoupled) d += o.weight_decay * w[i];
                    m[i] = o.beta1 * m[i] + (1 - o.beta1) * d;
                    v[i] = o.beta2 * v[i] + (1 - o.beta2) * d * d;
                    const double m_hat = m[i] / (1 - std::pow(o.beta1, double(t)));
                    const double v_hat = v[i] / (1 - std::pow(o.beta2, double(t)));
                    if (decoupled) w[i] -= rate * o.weight_decay * w[i];
                    w[i] -= rate * m_hat / (std::sqrt(v_hat) + o.eps);
                    CHECK(relatively_close(element(f.storage.master, int64_t(i)), w[i], 1e-13));
                    CHECK(relatively_close(element(exp_avg(f.storage), int64_t(i)), m[i], 1e-13));
                    CHECK(relatively_close(element(exp_avg_sq(f.storage), int64_t(i)), v[i], 1e-13));
                }
                CHECK(values(f.storage.g) == g);  // not changed: clipping is a part of the update
            }
        }
}

TEST_CASE("the compute copy is written in the same pass") {
    Fixture f({Dtype::f32, Dtype::bf16}, 7);
    f.set_gradient({1, -2, 3, 4, -5, 6, 7});
    const std::vector<double> before = values(f.storage.w);
    f.step(ParamGroups({}), 1, 0.1, 1);
    CHECK(values(f.storage.w) != before);
    for (int64_t i = 0; i < 7; ++i)
        CHECK(element(f.storage.w, i) == double(float(bf16(float(element(f.storage.master, i))))));
}

TEST_CASE("nothing is written if a gradient or the loss is not finite") {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                     inf = std::numeric_limits<double>::infinity();
    for (const StateTypes& types :
         {f64, StateTypes{Dtype::f32, Dtype::bf16}, StateTypes{Dtype::bf16, Dtype::bf16}})
        for (const auto& [bad_gradient, loss] : std::vector<std::pair<double, double>>{
                 {nan, 1}, {inf, 1}, {-inf, 1}, {1, nan}, {1, inf}, {1e30, 1}}) {
            CAPTURE(name_of(types.master), bad_gradient, loss);
            Fixture f(types, 5);
            const ParamGroups adam({});
            f.set_gradient({1, 2, 3, 4, 5});
            f.step(adam, 1, 0.1, 1);
            CHECK(f.scalars.refusals == 0);
            const auto before = f.state();
            f.set_gradient({1, 2, bad_gradient, 4, 5});
            f.step(adam, 2, 0.1, 1, loss);
            // a large gradient is clipped, not refused
            CHECK((f.scalars.refusals == 0) == (bad_gradient == 1e30));
            CHECK((f.state() == before) == (bad_gradient != 1e30));
        }
}

TEST_CASE("a frozen parameter is neither measured nor updated") {
    Fixture f(f64, 3, false);
    CHECK_FALSE(bool(f.storage.gradient));
    CHECK(f.storage.moments.empty());
    const std::vector<double> before = values(f.storage.master);
    f.step(ParamGroups({}), 1, 0.1, 1);
    CHECK(f.scalars.grad_norm == 0);
    CHECK(values(f.storage.master) == before);
}

TEST_CASE("the norm is that of all parameters together") {
    Parameters parameters(f64);
    Storage& a = parameters.add(
        {{.name = "a", .shape = {2, 2}, .init = Init{}}, {.name = "b", .shape = {1, 2}, .init = Init{}}});
    Storage& c = parameters.add({.name = "c", .shape = {3}, .init = Init{}});
    parameters.allocate(true);
    for (int64_t i = 0; i < 6; ++i) set_element(a.g, i, 2);
    for (int64_t i = 0; i < 3; ++i) set_element(c.g, i, -5);
    Exec exec;
    exec.workspace = Arena(4096, "workspace");
    StepScalars scalars;
    const ParamGroups adam({});
    scalars = adam.begin_step(1, 0.1, 1);
    measure_norm(exec, cpu_kernels(), parameters, scalars, 3);
    CHECK(relatively_close(scalars.grad_norm, std::sqrt(6 * 4 + 3 * 25.0), 1e-15));
    CHECK(relatively_close(scalars.clip, 3 / (scalars.grad_norm + 1e-6), 1e-15));
}

TEST_CASE("each parameter of a stacked storage is rounded with its own random bits") {
    // the same numbers under other names are rounded with other bits
    Parameters parameters({Dtype::bf16, Dtype::bf16});
    Storage& s = parameters.add({{.name = "a", .shape = {256, 1}, .init = Init::ones()},
                                 {.name = "b", .shape = {256, 1}, .init = Init::ones()}});
    ParamGroups({}).attach(parameters);
    parameters.allocate(true);
    parameters.initialise(1, 1);
    for (int64_t i = 0; i < 512; ++i) set_element(s.g, i, 1);
    Exec exec;
    exec.workspace = Arena(1 << 16, "workspace");
    StepScalars scalars;
    const ParamGroups adam({.weight_decay = 0});
    scalars = adam.begin_step(1, 0.001, 1);
    measure_norm(exec, cpu_kernels(), parameters, scalars, 0);
    adam.update(exec, cpu_kernels(), parameters, scalars);
    const std::vector<double> all = values(s.master), a(all.begin(), all.begin() + 256),
                              b(all.begin() + 256, all.end());
    CHECK(a != b);
}

TEST_CASE("bfloat16 weights are rounded without bias, repeatably, and differently in each step") {
    constexpr int64_t n = 20000;
    const auto after_one_step = [](uint64_t seed, uint64_t step) {
        Fixture f({Dtype::bf16, Dtype::bf16}, n);
        for (int64_t i = 0; i < n; ++i) {
            set_element(f.storage.master, i, 1);
            set_element(f.storage.g, i, 1);
        }
        const ParamGroups adam({.weight_decay = 0}, seed);
        f.scalars = adam.begin_step(step, 1e-3, 1);
        f.scalars.groups[0].bias_correction1 =
            1 - 0.9;  // as in a first step: the update is -rate in any step
        f.scalars.groups[0].bias_correction2 = 1 - 0.95;
        adam.update(f.exec, cpu_kernels(), f.parameters, f.scalars);
        return values(f.storage.master);
    };
    const std::vector<double> w = after_one_step(5, 1);
    // 1 - 0.001 is between 1 - 2^-8 = 0.99609375 and 1: about a quarter (0.256) is rounded down
    double sum = 0;
    for (const double x : w) {
        CHECK((x == 1 || x == 1 - 1.0 / 256));
        sum += x;
    }
    const double p = 0.001 * 256, deviation = std::sqrt(p * (1 - p) / double(n)) / 256;
    CHECK(close(sum / double(n), 1 - 0.001, 5 * deviation));
    CHECK(after_one_step(5, 1) == w);
    CHECK(after_one_step(5, 2) != w);
    CHECK(after_one_step(6, 1) != w);

    // rounding to nearest would stay at 1 for ever; this reaches the value on average
    Fixture f({Dtype::bf16, Dtype::bf16}, 4000);
    for (int64_t i = 0; i < 4000; ++i) set_element(f.storage.master, i, 1);
    const ParamGroups adam({.weight_decay = 0});
    for (uint64_t step = 1; step <= 20; ++step) {
        for (int64_t i = 0; i < 4000; ++i) set_element(f.storage.g, i, 1);
        f.step(adam, step, 1e-3, 0);
    }
    double mean = 0;
    for (const double x : values(f.storage.master)) mean += x / 4000;
    CHECK(close(mean, 0.98, 5e-4));
}
