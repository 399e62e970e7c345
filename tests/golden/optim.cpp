// SPDX-License-Identifier: Apache-2.0
// Adam, AdamW and clipping against PyTorch's, golden/README.md section optim: five steps of each case, in the
// type of the case and, for those in float64, in float32 too.
#include "coeus/device/memory.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/kernels/kernels.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

/// What a run of a case may differ by after a step: absolute, or units of bf16 in the last place for each
/// step taken.
struct Tolerance {
    double absolute = 0, bf16_units = 0;
};

double bf16_unit(double x) {
    return std::ldexp(1.0, std::max(-133, std::ilogb(std::fabs(x) > 0 ? x : 1e-39) - 7));
}

void run_adam(const std::filesystem::path& folder, const std::string& name, Dtype type,
              const Tolerance& tolerance) {
    const JsonDocument document = JsonDocument::read(folder / "cases.json");
    const JsonView c = document.root()["cases"][name];
    const Safetensors inputs = Safetensors::open((folder / "adam_inputs.safetensors").string());
    const Safetensors expected = Safetensors::open((folder / (name + ".safetensors")).string());
    AdamOptions options;
    options.beta1 = c["betas"][0].number();
    options.beta2 = c["betas"][1].number();
    options.eps = c.number("eps");
    options.weight_decay = c.number("weight_decay");
    options.decoupled = c.string("optimizer") == "AdamW";
    const Dtype acc = type == Dtype::f64 ? Dtype::f64 : Dtype::f32;

    for (const auto& [tensor, extents] : document.root()["adam_shapes"].items()) {
        const Shape shape = inputs.entry(tensor + ".initial").shape;
        REQUIRE(int64_t(extents.size()) == shape.rank);
        OwnedTensor master(type, shape), first(type, shape), second(type, shape), grad(acc, shape);
        OwnedTensor rounded(type, shape), reference(Dtype::f64, shape);
        std::vector<double> largest(size_t(shape.count()), 0.0);  // of an element's gradients
        inputs.read(tensor + ".initial", master);
        for (int step = 1; step <= 5; ++step) {
            inputs.read(fmt::format("{}.grad.{}", tensor, step),
                        rounded);  // gradients in the type of the case
            test::copy_converting(grad, rounded);
            for (int64_t i = 0; i < shape.count(); ++i)
                largest[size_t(i)] = std::fmax(largest[size_t(i)], std::fabs(element(grad, i)));
            StepScalars s;
            s.groups[0].learning_rate = document.root()["lr"][size_t(step - 1)].number();
            s.groups[0].bias_correction1 = 1 - std::pow(options.beta1, step);
            s.groups[0].bias_correction2 = 1 - std::pow(options.beta2, step);
            s.step = uint64_t(step);
            Exec exec;
            cpu_kernels().adam(exec, {master, first, second, grad, {}}, options, {}, s);
            expected.read(fmt::format("{}.step.{}", tensor, step), reference);
            for (int64_t i = 0; i < shape.count(); ++i) {
                const double value = element(reference, i);
                const double bound = tolerance.absolute + tolerance.bf16_units * step * bf16_unit(value);
                INFO(name << " in " << name_of(type) << ", " << tensor << "[" << i << "] after step "
                          << step);
                REQUIRE(close(element(master, i), value, bound));
            }
        }
        for (const auto& [moment, ours] :
             {std::pair<std::string, Tensor>{"exp_avg", first}, {"exp_avg_sq", second}}) {
            expected.read(tensor + "." + moment, reference);
            for (int64_t i = 0; i < shape.count(); ++i) {
                const double value = element(reference, i);
                // moments may cancel, so rounding is relative to what they were made of: up to the largest
                // gradient, or its square, which reaches 1e4
                const double size = largest[size_t(i)] * (moment == "exp_avg" ? 1 : largest[size_t(i)]);
                const double bound =
                    tolerance.absolute + (tolerance.absolute + tolerance.bf16_units * 5.0 / 128) * size;
                INFO(name << " in " << name_of(type) << ", " << moment << " of " << tensor << "[" << i
                          << "]");
                REQUIRE(close(element(ours, i), value, bound));
            }
        }
    }
}

}  // namespace

TEST_CASE("golden: Adam and AdamW") {
    const auto folder = golden("optim");
    if (folder.empty()) return;
    for (const char* name : {"adam", "adam_decay", "adamw", "adamw_no_decay", "adamw_large_eps"}) {
        run_adam(folder, name, Dtype::f64, {.absolute = 1e-13});
        run_adam(folder, name, Dtype::f32, {.absolute = 2e-6});
    }
    run_adam(folder, "adamw_f32", Dtype::f32, {.absolute = 2e-6});
    run_adam(folder, "adamw_bf16_parameters", Dtype::bf16, {.absolute = 1e-6, .bf16_units = 1});
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
        if (!std::isfinite(expected)) continue;
        CHECK(relatively_close(s.grad_norm, expected, 1e-6));
        for (int i = 0; i < count; ++i) {
            const auto before = file.read_all<double>(fmt::format("{}.{}", name, i));
            const auto after = file.read_all<double>(fmt::format("{}.{}.l2.f64", name, i));
            for (size_t j = 0; j < before.size(); ++j)
                CHECK(relatively_close(before[j] * s.clip, after[j], 1e-6));
        }
    }
}
