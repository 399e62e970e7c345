// SPDX-License-Identifier: Apache-2.0
// Optimizers, the Newton-Schulz iteration and clipping against PyTorch's (golden/README.md, section optim):
// five steps of every case of cases.json, in the types for which it gives tolerances.
#include "../../src/optim/muon.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/optim/param_groups.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>
#include <functional>
#include <map>
#include <optional>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

double bf16_unit(double x) {
    return std::ldexp(1.0, std::max(-133, std::ilogb(std::fabs(x) > 0 ? x : 1e-39) - 7));
}

/// The optimizer's options of a case. An unknown key throws.
OptimizerOptions options_of(const JsonView& c) {
    OptimizerOptions o;
    const std::map<std::string, std::function<void(const JsonView&)>> keys = {
        {"optimizer", [&](const JsonView& v) { o.name = v.string(); }},
        {"betas", [&](const JsonView& v) { o.beta1 = v[0].number(), o.beta2 = v[1].number(); }},
        {"eps", [&](const JsonView& v) { o.eps = v.number(); }},
        {"weight_decay", [&](const JsonView& v) { o.weight_decay = v.number(); }},
        {"momentum", [&](const JsonView& v) { o.momentum = v.number(); }},
        {"nesterov", [&](const JsonView& v) { o.nesterov = v.boolean(); }},
        {"adjust_lr_fn", [&](const JsonView& v) { o.adjust_lr_fn = v.string(); }},
        {"states", [&](const JsonView&) { o.implementation = "fused_opt_states_bf16"; }},
        {"dtype", [](const JsonView&) {}},
        {"fused", [](const JsonView&) {}},
    };
    for (const auto& [key, value] : c.items()) {
        const auto found = keys.find(key);
        INFO("key " << key);
        REQUIRE(found != keys.end());
        found->second(value);
    }
    return o;
}

/// One tensor of a case, updated by the optimizer like a parameter of a model.
class Updated {
public:
    Updated(const OptimizerOptions& options, const StateTypes& types, const Shape& shape)
        : optimizer_(options),
          parameters_(types),
          storage_(parameters_.add({.name = "test", .shape = shape, .init = Init()})),
          scratch_(1 << 20, "scratch"),
          matrices_(scratch_) {
        exec_.workspace = Arena(1 << 20, "workspace");
        optimizer_.attach(parameters_);
        parameters_.allocate(true);
    }
    void start(const Safetensors& inputs, const std::string& name) {
        inputs.read(name, storage_.master);
        parameters_.refresh_compute(exec_, cpu_kernels());
    }
    /// `gradient` has the type of the case.
    void step(uint64_t number, double rate, const OwnedTensor& gradient) {
        test::copy_converting(storage_.gradient, gradient);
        const StepScalars scalars = optimizer_.begin_step(number, rate, 1);
        optimizer_.update(exec_, cpu_kernels(), parameters_, scalars, &matrices_);
    }
    /// The direction in which the last step moved the weights.
    Tensor direction() const { return storage_.gradient; }
    Tensor weights() const { return storage_.master; }
    Tensor moment(const std::string& name) const { return test::moment(name)(storage_); }

private:
    ParamGroups optimizer_;
    Parameters parameters_;
    Storage& storage_;
    Exec exec_;
    Arena scratch_;
    WholeMatrices matrices_;
};

struct Files {
    JsonDocument document;
    Safetensors inputs, expected;

    Files(const fs::path& folder, const std::string& kind, const std::string& name)
        : document(JsonDocument::read(folder / "cases.json")),
          inputs(Safetensors::open((folder / (kind + "_inputs.safetensors")).string())),
          expected(Safetensors::open((folder / (name + ".safetensors")).string())) {}
    double rate(int64_t step) const { return document.root()["lr"][size_t(step - 1)].number(); }
    int64_t steps() const { return int64_t(document.root()["lr"].size()); }
    JsonView shapes(const std::string& kind) const { return document.root()[kind + "_shapes"]; }
};

/// The largest allowed difference of a run of Adam. After each step: an absolute difference, or units in the
/// last place of bf16 per step taken. For its moments, at the end: `moment_units`.
struct Tolerance {
    double absolute = 0, bf16_units = 0, moment_units = 0;
};

void compare_adam(const fs::path& folder, const std::string& name, const OptimizerOptions& options,
                  Dtype type, const Tolerance& tolerance) {
    const Files files(folder, "adam", name);
    for (const auto& [tensor, extents] : files.shapes("adam").items()) {
        const Shape shape = files.inputs.entry(tensor + ".initial").shape;
        REQUIRE(int64_t(extents.size()) == shape.rank);
        Updated updated(options, {type, type}, shape);
        updated.start(files.inputs, tensor + ".initial");
        OwnedTensor gradient(type, shape), reference(Dtype::f64, shape);
        std::vector<double> largest(size_t(shape.count()), 0.0);  // of an element's gradients
        for (int64_t step = 1; step <= files.steps(); ++step) {
            files.inputs.read(fmt::format("{}.grad.{}", tensor, step), gradient);
            for (int64_t i = 0; i < shape.count(); ++i)
                largest[size_t(i)] = std::fmax(largest[size_t(i)], std::fabs(element(gradient, i)));
            updated.step(uint64_t(step), files.rate(step), gradient);
            files.expected.read(fmt::format("{}.step.{}", tensor, step), reference);
            for (int64_t i = 0; i < shape.count(); ++i) {
                const double value = element(reference, i);
                const double bound =
                    tolerance.absolute + tolerance.bf16_units * double(step) * bf16_unit(value);
                INFO(name << " in " << name_of(type) << ", " << tensor << "[" << i << "] after step "
                          << step);
                REQUIRE(close(element(updated.weights(), i), value, bound));
            }
        }
        for (const std::string moment : {"exp_avg", "exp_avg_sq"}) {
            files.expected.read(tensor + "." + moment, reference);
            for (int64_t i = 0; i < shape.count(); ++i) {
                const double value = element(reference, i);
                // moments may cancel, so rounding is relative to the size of their summands: at most the
                // largest gradient, or its square, which reaches 1e4
                const double size = largest[size_t(i)] * (moment == "exp_avg" ? 1 : largest[size_t(i)]);
                const double bound = tolerance.absolute +
                                     (tolerance.absolute + tolerance.bf16_units * 5.0 / 128) * size +
                                     tolerance.moment_units * bf16_unit(value);
                INFO(name << " in " << name_of(type) << ", " << moment << " of " << tensor << "[" << i
                          << "]");
                REQUIRE(close(element(updated.moment(moment), i), value, bound));
            }
        }
    }
}

/// (p_t - (1 - rate decay) p_{t-1}) / (rate factor): the direction that a step of Muon subtracted, up to its
/// sign.
std::vector<double> direction_of(const std::vector<double>& after, const std::vector<double>& before,
                                 const OptimizerOptions& o, double rate, const Shape& shape) {
    const double factor = muon_factor(o.adjust_lr_fn, shape.rows(), shape.cols());
    std::vector<double> d;
    for (size_t i = 0; i < after.size(); ++i)
        d.push_back((after[i] - (1 - rate * o.weight_decay) * before[i]) / (rate * factor));
    return d;
}

/// `suffix`: ".f64" for the files in float64, "" for those whose iteration is in bfloat16. Our direction is
/// read from the gradient, where the optimizer leaves it: the difference of two float32 weights has fewer
/// digits.
void compare_muon(const fs::path& folder, const std::string& name, const OptimizerOptions& options,
                  const StateTypes& types, const std::string& suffix, double tolerance,
                  std::optional<double> of_weights = std::nullopt) {
    const Files files(folder, "muon", name);
    for (const auto& [tensor, extents] : files.shapes("muon").items()) {
        const Shape shape = files.inputs.entry(tensor + ".initial").shape;
        REQUIRE(int64_t(extents.size()) == shape.rank);
        Updated updated(options, types, shape);
        updated.start(files.inputs, tensor + ".initial");
        std::vector<double> before = values(updated.weights());
        for (int64_t step = 1; step <= files.steps(); ++step) {
            OwnedTensor gradient(types.accumulate(), shape);
            files.inputs.read(fmt::format("{}.grad.{}", tensor, step), gradient);
            updated.step(uint64_t(step), files.rate(step), gradient);
            const std::vector<double> expected =
                files.expected.read_all<double>(fmt::format("{}.step.{}{}", tensor, step, suffix));
            std::vector<double> direction = values(updated.direction());
            for (double& x : direction) x = -x;
            INFO(name << suffix << " in " << name_of(types.compute) << ", " << tensor << " after step "
                      << step);
            REQUIRE(normalised_error(direction, direction_of(expected, before, options, files.rate(step),
                                                             shape)) <= tolerance);
            const std::vector<double> weights = values(updated.weights());
            for (size_t i = 0; of_weights && i < weights.size(); ++i)
                REQUIRE(close(weights[i], expected[i], *of_weights));
            before = expected;
        }
        const std::vector<double> buffer = values(updated.moment("momentum_buffer"));
        INFO(name << ", momentum_buffer of " << tensor);
        REQUIRE(normalised_error(buffer, files.expected.read_all<double>(tensor + ".momentum_buffer")) <=
                1e-6);
    }
}

// Compares a case in every type for which it gives tolerances; returns the names of those types.
std::string compare(const fs::path& folder, const std::string& name, const JsonView& c,
                    const OptimizerOptions& options) {
    const std::string dtype = c.string("dtype");
    if (options.name == "Muon") {
        REQUIRE(dtype == "float32");
        // iterations that round differently: only the directions are compared
        compare_muon(folder, name, options, {Dtype::f64, Dtype::f64}, ".f64", 1e-9, 1e-12);
        compare_muon(folder, name, options, {Dtype::f32, Dtype::f32}, ".f64", 1e-4, 2e-6);
        compare_muon(folder, name, options, {Dtype::f32, Dtype::f32}, "", 6e-2);
        compare_muon(folder, name, options, {Dtype::f32, Dtype::bf16}, "", 3e-2);
        return "float64, float32, bfloat16";
    }
    if (c.contains("states")) {
        compare_adam(folder, name, options, Dtype::f32, {.absolute = 2e-6, .moment_units = 1});
        return "float32 with moments in bfloat16";
    }
    if (dtype == "bfloat16") {
        compare_adam(folder, name, options, Dtype::bf16, {.absolute = 1e-6, .bf16_units = 1});
        return dtype;
    }
    compare_adam(folder, name, options, Dtype::f32, {.absolute = 2e-6});
    if (dtype == "float32") return dtype;
    REQUIRE(dtype == "float64");
    compare_adam(folder, name, options, Dtype::f64, {.absolute = 1e-13});
    return "float64, float32";
}

}  // namespace

TEST_CASE("golden: optimizers") {
    const auto folder = golden("optim");
    if (folder.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "cases.json");
    int compared = 0;
    for (const auto& [name, c] : document.root()["cases"].items()) {
        INFO(name);
        const OptimizerOptions options = options_of(c);
        const std::vector<std::string> known = optimizer_names();
        if (std::find(known.begin(), known.end(), options.name) == known.end()) {
            try {
                make_optimizer(options, 0, 0);
                FAIL("make_optimizer accepted an unknown optimizer");
            } catch (const ConfigError& refused) {
                fmt::print("optim/{}: left out: {}\n", name, refused.what());
            }
            continue;
        }
        fmt::print("optim/{}: compared in {}\n", name, compare(folder, name, c, options));
        ++compared;
    }
    CHECK(compared > 0);
}

TEST_CASE("golden: Newton-Schulz iteration") {
    const auto folder = golden("optim");
    if (folder.empty()) return;
    const Safetensors file = Safetensors::open((folder / "newton_schulz.safetensors").string());
    const OptimizerOptions usual;
    int compared = 0;
    for (const std::string& name : file.names()) {
        if (!name.ends_with(".input")) continue;
        const std::string matrix = name.substr(0, name.size() - std::string(".input").size());
        for (int64_t steps = 0; file.has(fmt::format("{}.{}", matrix, steps)); ++steps)
            for (const Dtype type : {Dtype::f64, Dtype::bf16}) {
                const std::string expected =
                    fmt::format("{}.{}{}", matrix, steps, type == Dtype::f64 ? ".f64" : "");
                INFO(expected);
                OwnedTensor x(type, file.entry(name).shape);
                file.read(name, x);
                Exec exec;
                exec.workspace = Arena(1 << 20, "workspace");
                Arena scratch(1 << 20, "scratch");
                newton_schulz(exec, cpu_kernels(), x, steps, usual.ns_coefficients, scratch);
                CHECK(normalised_error(values(x), file.read_all<double>(expected)) <=
                      (type == Dtype::f64 ? 1e-12 : 2e-2));
                ++compared;
            }
        fmt::print("optim/newton_schulz, {}: compared in float64, bfloat16\n", matrix);
    }
    CHECK(compared > 0);
}

TEST_CASE("golden: clipping") {
    const auto folder = golden("optim");
    if (folder.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "cases.json");
    const JsonView clipping = document.root()["clipping"];
    const Safetensors file = Safetensors::open((folder / "clipping.safetensors").string());
    for (const auto& [name, norms] : clipping["total_norm"].items()) {
        INFO(name);
        Exec exec;
        exec.workspace = Arena(1 << 16, "test");
        StepScalars s;
        int count = 0;
        for (; file.has(fmt::format("{}.{}", name, count)); ++count) {
            OwnedTensor gradient(Dtype::f32, file.entry(fmt::format("{}.{}", name, count)).shape);
            file.read(fmt::format("{}.{}", name, count), gradient);
            cpu_kernels().sum_of_squares(exec, &s.squared_norm, gradient);
        }
        REQUIRE(count > 0);
        cpu_kernels().finish_norm(exec, s, clipping.number("max_norm"));
        const double expected = std::stod(norms.string("l2.f64"));
        CHECK((s.refusals == 0) == std::isfinite(expected));
        if (!std::isfinite(expected)) {
            fmt::print("optim/clipping, {}: compared: the step is refused\n", name);
            continue;
        }
        CHECK(relatively_close(s.grad_norm, expected, 1e-6));
        for (int i = 0; i < count; ++i) {
            const auto before = file.read_all<double>(fmt::format("{}.{}", name, i));
            const auto after = file.read_all<double>(fmt::format("{}.{}.l2.f64", name, i));
            for (size_t j = 0; j < before.size(); ++j)
                CHECK(relatively_close(before[j] * s.clip, after[j], 1e-6));
        }
        fmt::print("optim/clipping, {}: compared\n", name);
    }
}
