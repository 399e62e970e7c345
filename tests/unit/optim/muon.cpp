// SPDX-License-Identifier: Apache-2.0
// Muon: which parameters it updates, each matrix separately, and what a step does not change. Its numbers are
// tested in tests/golden/optim.cpp.
#include "../../../src/optim/muon.hpp"

#include "coeus/base/random.hpp"
#include "coeus/optim/param_groups.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const OptimizerOptions muon = {.name = "Muon", .weight_decay = 0};

// Parameters whose weights and gradients depend only on their names.
struct Stacked {
    Parameters parameters;
    Exec exec;
    Arena scratch{1 << 20, "scratch"};
    WholeMatrices matrices{scratch};

    Stacked(const ParamGroups& groups, const std::vector<std::vector<Param>>& storages,
            const StateTypes& types = {Dtype::f64, Dtype::f64})
        : parameters(types) {
        for (const std::vector<Param>& params : storages) parameters.add(params);
        exec.workspace = Arena(1 << 20, "workspace");
        groups.attach(parameters);
        parameters.allocate(true);
        parameters.initialise(1, 1);
        parameters.refresh_compute(exec, cpu_kernels());
    }
    void step(const ParamGroups& groups, uint64_t number, double scale = 1, bool refused = false) {
        for (const Storage& storage : parameters.storages())
            for (const Param& param : storage.params()) {
                const Tensor g = storage.rows_of(param, storage.gradient);
                const RandomStream random(number, param.name);
                for (int64_t i = 0; i < g.count(); ++i)
                    set_element(g, i, scale * normal_quantile(random.uniform(uint64_t(i))));
            }
        StepScalars scalars = groups.begin_step(number, 0.1, 1);
        scalars.refusals = refused ? 1 : 0;
        groups.update(exec, cpu_kernels(), parameters, scalars, &matrices);
    }
    std::vector<double> of(const std::string& name, const StorageTensor& kind = &Storage::master) const {
        for (const Storage& storage : parameters.storages())
            for (const Param& param : storage.params())
                if (param.name == name) return values(storage.rows_of(param, kind(storage)));
        throw LogicError("no parameter " + name);
    }
};

Param matrix(const std::string& name, const Shape& shape) {
    return {.name = name, .shape = shape, .init = Init::normal(1)};
}

}  // namespace

TEST_CASE("Muon updates the matrices of blocks, and AdamW the other parameters") {
    const ParamGroups groups(muon), adamw({.weight_decay = 0});
    const std::vector<std::vector<Param>> storages = {
        {{.name = "table", .shape = {5, 4}, .init = Init::normal(1), .role = ParamRole::embedding}},
        {matrix("wq", {4, 4}), matrix("wk", {2, 4})},
        {{.name = "norm", .shape = {4}, .init = Init::ones(), .role = ParamRole::norm}},
        {{.name = "output", .shape = {5, 4}, .init = Init::normal(1), .role = ParamRole::output}}};
    Stacked mixed(groups, storages), plain(adamw, storages);
    for (uint64_t step : {1, 2}) {
        mixed.step(groups, step);
        plain.step(adamw, step);
    }
    for (const char* name : {"table", "norm", "output"}) CHECK(mixed.of(name) == plain.of(name));
    for (const char* name : {"wq", "wk"}) CHECK(mixed.of(name) != plain.of(name));
    CHECK(groups.text(mixed.parameters) == "AdamW for 3 parameters, Muon for 2 parameters");
    std::vector<std::string> kept;
    for (const Storage& storage : mixed.parameters.storages())
        for (const Moment& moment : storage.kept()) kept.push_back(moment.name);
    CHECK(kept == std::vector<std::string>{"exp_avg", "exp_avg_sq", "momentum_buffer", "exp_avg",
                                           "exp_avg_sq", "exp_avg", "exp_avg_sq"});
}

TEST_CASE("Muon treats each matrix separately, however they are stored") {
    const ParamGroups groups(muon);
    Stacked together(groups, {{matrix("wq", {8, 6}), matrix("wk", {4, 6}), matrix("wv", {4, 6})}}),
        apart(groups, {{matrix("wq", {8, 6})}, {matrix("wk", {4, 6})}, {matrix("wv", {4, 6})}});
    for (uint64_t step : {1, 2, 3}) {
        together.step(groups, step);
        apart.step(groups, step);
    }
    for (const char* name : {"wq", "wk", "wv"}) {
        CHECK(together.of(name) == apart.of(name));
        CHECK(together.of(name, moment("momentum_buffer")) == apart.of(name, moment("momentum_buffer")));
    }
    // several matrices in one parameter are treated separately
    Stacked experts(groups, {{matrix("w", {2, 3, 5})}});
    const std::vector<double> before = experts.of("w");
    experts.step(groups, 1);
    for (const size_t first : {size_t(0), size_t(15)}) {
        double squares = 0;
        for (size_t i = first; i < first + 15; ++i)
            squares += std::pow((experts.of("w")[i] - before[i]) / 0.1, 2);
        CHECK(squares > 3 * 0.68 * 0.68);  // three singular values each
        CHECK(squares < 3 * 1.2 * 1.2);
    }
}

TEST_CASE("steps of Muon follow the formula, for tall and wide matrices and for several in one parameter") {
    constexpr double rate = 0.1;  // of Stacked::step
    for (const Shape& shape : {Shape{6, 9}, Shape{9, 4}, Shape{2, 9, 4}})
        for (const bool nesterov : {true, false})
            for (const char* adjust : {"original", "match_rms_adamw", "spectral_unclamped"}) {
                CAPTURE(shape.text(), nesterov, adjust);
                OptimizerOptions o = muon;
                o.weight_decay = 0.3;
                o.momentum = 0.8;
                o.nesterov = nesterov;
                o.adjust_lr_fn = adjust;
                const ParamGroups groups(o);
                Stacked s(groups, {{matrix("w", shape)}});
                const int64_t rows = shape[shape.rank - 2], cols = shape.cols();
                const double factor = muon_factor(adjust, rows, cols);
                std::vector<double> w = s.of("w"), momentum(w.size());
                for (const uint64_t step : {1, 2}) {
                    const RandomStream random(step, "w");
                    const OwnedTensor direction(Dtype::f64, {shape.rows(), cols});
                    for (size_t i = 0; i < w.size(); ++i) {
                        const double gradient = normal_quantile(random.uniform(i));
                        momentum[i] = 0.8 * momentum[i] + 0.2 * gradient;
                        set_element(direction, int64_t(i),
                                    nesterov ? 0.8 * momentum[i] + 0.2 * gradient : momentum[i]);
                    }
                    for (int64_t first = 0; first < shape.rows(); first += rows)
                        newton_schulz(s.exec, cpu_kernels(), direction.view.slice_rows(first, rows),
                                      o.ns_steps, o.ns_coefficients, s.scratch);
                    for (size_t i = 0; i < w.size(); ++i)
                        w[i] -= rate * (o.weight_decay * w[i] + factor * element(direction, int64_t(i)));
                    s.step(groups, step);
                    CHECK(normalised_error(s.of("w"), w) < 1e-12);
                    CHECK(normalised_error(s.of("w", moment("momentum_buffer")), momentum) < 1e-13);
                }
            }
}

TEST_CASE("parameters without weight decay have none in the optimizer next to Muon either") {
    OptimizerOptions o = muon;
    o.weight_decay = 0.5;
    o.weight_decay_exclude = {"norm"};
    const ParamGroups groups(o);
    Stacked s(groups, {{{.name = "norm", .shape = {4}, .init = Init::ones(), .role = ParamRole::norm}},
                       {{.name = "bias", .shape = {4}, .init = Init::ones(), .role = ParamRole::bias}}});
    s.step(groups, 1, 0);
    CHECK(s.of("norm") == std::vector<double>(4, 1));
    CHECK(s.of("bias") == std::vector<double>(4, 1 - 0.1 * 0.5));
}

TEST_CASE("a step of Muon does not depend on the size of the gradient, and a zero gradient changes nothing") {
    const ParamGroups groups(muon);
    Stacked small(groups, {{matrix("w", {6, 9})}}), large(groups, {{matrix("w", {6, 9})}}),
        still(groups, {{matrix("w", {6, 9})}});
    const std::vector<double> before = still.of("w");
    small.step(groups, 1, 1e-3);
    large.step(groups, 1, 1e6);
    still.step(groups, 1, 0);
    CHECK(normalised_error(small.of("w"), large.of("w")) < 1e-13);
    CHECK(small.of("w") != before);
    CHECK(still.of("w") == before);
}

TEST_CASE("a refused step does not change weights and momentum") {
    for (const StateTypes& types : {StateTypes{Dtype::f64, Dtype::f64}, StateTypes{Dtype::f32, Dtype::bf16},
                                    StateTypes{Dtype::bf16, Dtype::bf16}}) {
        const ParamGroups groups(muon);
        Stacked s(groups, {{matrix("w", {6, 9})}}, types);
        s.step(groups, 1);
        const auto weights = s.of("w"), momentum = s.of("w", moment("momentum_buffer")),
                   compute = s.of("w", &Storage::w);
        s.step(groups, 2, std::numeric_limits<double>::quiet_NaN(), true);
        CHECK(s.of("w") == weights);
        CHECK(s.of("w", moment("momentum_buffer")) == momentum);
        CHECK(s.of("w", &Storage::w) == compute);
        s.step(groups, 2);
        CHECK(s.of("w") != weights);
        CHECK(s.of("w", &Storage::w) != compute);
        // the momentum has the type of the gradient
        CHECK(s.parameters.storages()[0].moments[0].dtype == types.accumulate());
    }
}

TEST_CASE("Muon: impossible options are refused by name") {
    OptimizerOptions bad = muon;
    bad.ns_coefficients = {1, 2};
    CHECK_THROWS_WITH(ParamGroups(bad), "optimizer.ns_coefficients: must be three numbers, but there are 2");
    bad = muon;
    bad.adjust_lr_fn = "none";
    CHECK_THROWS_WITH(ParamGroups(bad), Contains("optimizer.adjust_lr_fn = \"none\": must be original"));
    // named for a vector
    const ParamGroups norms({}, 0,
                            {{.pattern = "norm", .roles = {}, .optimizer = muon, .names_optimizer = true}});
    Parameters parameters({Dtype::f64, Dtype::f64});
    parameters.add({.name = "norm.weight", .shape = {4}, .init = Init::ones(), .role = ParamRole::norm});
    CHECK_THROWS_WITH(
        norms.attach(parameters),
        "optimizer.param_groups: pattern = \"norm\": Muon is for matrices, and norm.weight is a "
        "vector; let the group take matrices only");
    // parameters that are stored together need one kind of optimizer
    const ParamGroups half({}, 0,
                           {{.pattern = "wq", .roles = {}, .optimizer = muon, .names_optimizer = true}});
    Parameters stacked({Dtype::f64, Dtype::f64});
    stacked.add({matrix("wq", {4, 4}), matrix("wk", {2, 4})});
    CHECK_THROWS_WITH(
        half.attach(stacked),
        "optimizer.param_groups: wq and wk are stored together, so their optimizers must keep the same "
        "moments; give both the same optimizer_name and implementation");
    // a group's own options
    bad = muon;
    bad.ns_coefficients = {1, 2};
    CHECK_THROWS_WITH(
        ParamGroups(muon, 0, {{.pattern = "wq", .roles = {}, .optimizer = bad}}),
        "optimizer.param_groups: pattern = \"wq\": ns_coefficients: must be three numbers, but there are 2");
}

TEST_CASE("Muon does not step without whole matrices") {
    const ParamGroups groups(muon);
    Parameters parameters({Dtype::f64, Dtype::f64});
    parameters.add({matrix("wq", {4, 4})});
    groups.attach(parameters);
    parameters.allocate(true);
    Exec exec;
    CHECK_THROWS_WITH(groups.update(exec, cpu_kernels(), parameters, groups.begin_step(1, 0.1, 1)),
                      Contains("an optimizer needs whole matrices"));
}

TEST_CASE("a group that does not name an optimizer inherits Muon only for matrices of blocks") {
    OptimizerOptions slow = muon;
    slow.lr = muon.lr / 2;
    const std::vector<std::vector<Param>> storages = {
        {{.name = "table", .shape = {5, 4}, .init = Init::normal(1), .role = ParamRole::embedding}},
        {matrix("wq", {4, 4}), matrix("wk", {2, 4})},
        {{.name = "norm", .shape = {4}, .init = Init::ones(), .role = ParamRole::norm}}};
    const ParamGroupOptions all = {.pattern = "", .roles = role_names(), .optimizer = slow};
    OptimizerOptions slow_adamw = slow;
    slow_adamw.name = "AdamW";
    const ParamGroups inherits(muon, 0, {all}),
        adamw(muon, 0, {{.pattern = "", .roles = role_names(), .optimizer = slow_adamw}});
    Stacked mixed(inherits, storages), plain(adamw, storages);
    CHECK(inherits.text(mixed.parameters) == "AdamW for 2 parameters, Muon for 2 parameters");
    mixed.step(inherits, 1);
    plain.step(adamw, 1);
    for (const char* name : {"table", "norm"}) CHECK(mixed.of(name) == plain.of(name));
    for (const char* name : {"wq", "wk"}) CHECK(mixed.of(name) != plain.of(name));
    // if the group names it, Muon takes a table as well
    ParamGroupOptions table = {.pattern = "table", .roles = {}, .optimizer = muon, .names_optimizer = true};
    const ParamGroups named(muon, 0, {table});
    CHECK(named.text(Stacked(named, storages).parameters) == "AdamW for 1 parameter, Muon for 3 parameters");
}

TEST_CASE("number of steps and coefficients reach the Newton-Schulz iteration, also in a group") {
    OptimizerOptions other = muon;
    other.ns_steps = 2;
    other.ns_coefficients = {2, -1.5, 0.5};
    const auto direction = [](const OptimizerOptions& options) {
        const ParamGroups whole(options),
            group(muon, 0, {{.pattern = "w", .roles = {}, .optimizer = options}});
        Stacked a(whole, {{matrix("w", {6, 9})}}), b(group, {{matrix("w", {6, 9})}});
        const std::vector<double> before = a.of("w");
        a.step(whole, 1);
        b.step(group, 1);
        CHECK(a.of("w") == b.of("w"));
        std::vector<double> moved = a.of("w");
        for (size_t i = 0; i < moved.size(); ++i) moved[i] = (before[i] - moved[i]) / 0.1;
        return moved;
    };
    const auto expected = [](const OptimizerOptions& options) {
        OwnedTensor x(Dtype::f64, {6, 9});
        const RandomStream random(1, "w");
        // the direction of the first step, with Nesterov momentum
        const double scale = (1 - options.momentum) * (1 + options.momentum);
        for (int64_t i = 0; i < 54; ++i)
            set_element(x, i, scale * normal_quantile(random.uniform(uint64_t(i))));
        Exec exec;
        exec.workspace = Arena(1 << 20, "workspace");
        Arena scratch(1 << 20, "scratch");
        newton_schulz(exec, cpu_kernels(), x, options.ns_steps, options.ns_coefficients, scratch);
        return values(x);
    };
    OptimizerOptions fewer = muon;
    fewer.ns_steps = 2;
    for (const OptimizerOptions& options : {muon, fewer, other})
        CHECK(normalised_error(direction(options), expected(options)) < 1e-12);
    CHECK(normalised_error(expected(fewer), expected(muon)) > 1e-3);
    CHECK(normalised_error(expected(fewer), expected(other)) > 1e-3);
}

TEST_CASE("the factors of Muon's learning rate") {
    CHECK(muon_factor("original", 8, 2) == 2);
    CHECK(muon_factor("original", 2, 8) == 1);
    CHECK(muon_factor("match_rms_adamw", 4, 25) == 1);
    CHECK(muon_factor("spectral_unclamped", 2, 8) == 0.5);
}

TEST_CASE("whole matrices need the ranks of their sharding") {
    Parameters parameters({Dtype::f64, Dtype::f64});
    Param of_others = matrix("elsewhere", {3, 4});
    of_others.shard.sharding = parameters.add_sharding({});
    parameters.add(of_others);
    parameters.allocate(true);
    Exec exec;
    Arena scratch(1 << 20, "scratch");
    const WholeMatrices matrices(scratch);
    for (const Storage& storage : parameters.storages())
        CHECK_THROWS_WITH(matrices.replace(exec, cpu_kernels(), storage, [](const Param&, Tensor) {}),
                          Contains("whole matrices need the ranks of each sharding"));
}
