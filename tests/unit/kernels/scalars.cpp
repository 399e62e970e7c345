// SPDX-License-Identifier: Apache-2.0
// The formulas of math.hpp, sums, and the decisions that follow from the gradient norm.
#include "../../../src/kernels/rows/stochastic_rounding.hpp"
#include "coeus/base/random.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>

using namespace coeus;
using namespace coeus::rows;
using namespace coeus::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan_value = std::nan("");

}  // namespace

TEST_CASE("exp and 2^x are accurate to two units in the last place, also at the limits of their range") {
    const auto power_of_two = [](auto x) {
        using F = decltype(x);
        return exp2_polynomial<F, F, std::conditional_t<sizeof(F) == 8, uint64_t, uint32_t>>(x);
    };
    double worst_float = 0, worst_double = 0;
    for (double x = -87; x < 88; x += 0.00371) {
        const auto single = float(x);
        worst_float = worse_of(worst_float, std::fabs(exp_of(single) / std::exp(double(single)) - 1));
    }
    for (double x = -708; x < 709; x += 0.0173)
        worst_double = worse_of(worst_double, std::fabs(exp_of(x) / std::exp(x) - 1));
    for (double x = -126; x <= 0; x += 0.00371)
        worst_float =
            worse_of(worst_float, std::fabs(power_of_two(float(x)) / std::exp2(double(float(x))) - 1));
    for (double x = -1022; x <= 0; x += 0.0173)
        worst_double = worse_of(worst_double, std::fabs(power_of_two(x) / std::exp2(x) - 1));
    CHECK(worst_float <= 2.4e-7);
    CHECK(worst_double <= 4.5e-16);
    CHECK(exp_of(0.0f) == 1.0f);
    CHECK(exp_of(0.0) == 1.0);
    CHECK(exp_of(-1e30f) == 0.0f);
    CHECK(exp_of(-infinity) == 0.0);
    CHECK(exp_of(1e30f) > 1e38f);
    CHECK(std::isfinite(exp_of(1e30f)));
    CHECK(std::isnan(exp_of(float(nan_value))));
    CHECK(std::isnan(exp_of(nan_value)));
    CHECK(std::isnan(power_of_two(nan_value)));
    CHECK(std::isnan(power_of_two(float(nan_value))));
    CHECK(power_of_two(-1e30) == 0.0);  // not the smallest normal number: products with it are slow
    CHECK(power_of_two(-1e30f) == 0.0f);
    CHECK(power_of_two(0.0f) == 1.0f);
}

TEST_CASE(
    "stochastic rounding gives a neighbour, is right on average, and keeps values that are exact or not "
    "finite") {
    const RandomStream random(7, "test");
    for (float x : {1.0009765f, -3.1415927f, 1e-20f, 123456.0f}) {
        double sum = 0;
        const int draws = 40000;
        const auto below = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
        const auto above = std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0xffff0000u) + 0x10000u);
        for (int i = 0; i < draws; ++i) {
            const auto rounded = float(round_stochastically(x, uint32_t(random.u64(uint64_t(i)))));
            REQUIRE((rounded == below || rounded == above));
            sum += rounded;
        }
        // four standard deviations of a mean of draws between two neighbours
        CHECK(close(sum / draws, x, 4 * 0.5 * std::fabs(double(above) - double(below)) / std::sqrt(draws)));
    }
    CHECK(float(round_stochastically(1.5f, 0xffff)) == 1.5f);
    CHECK(float(round_stochastically(0.0f, 0xffff)) == 0.0f);
    CHECK(std::isinf(float(round_stochastically(float(infinity), 0xffff))));
    CHECK(std::isnan(float(round_stochastically(float(nan_value), 0xffff))));
}

TEST_CASE("sums are computed in double and added to the previous value") {
    for (Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16})
        for (const Shape& shape : {Shape{1}, Shape{7, 5}, Shape{40000}, Shape{130, 257}})
            for (int64_t padding : {0, 3})
                for (int threads : {1, 2, 3}) {
                    if (shape.rank == 1 && padding) continue;
                    const KernelCase c = {
                        "sum", {{"a", Role::input, Kind::compute, shape, 1, 1, padding}}, {}};
                    const Operands o = make_operands(c, type, type);
                    double expected = 10, expected_squares = 20, total = 10, squares = 20;
                    for (double x : values_of(o[0])) expected += x, expected_squares += x * x;
                    Exec planning, exec;
                    dry_kernels().sum(planning, &total, o[0]);
                    dry_kernels().sum_of_squares(planning, &squares, o[0]);
                    CHECK(total == 10);
                    exec.workspace = Arena(planning.workspace.peak(), "sum");
                    exec.threads = threads;
                    cpu_kernels().sum(exec, &total, o[0]);
                    cpu_kernels().sum_of_squares(exec, &squares, o[0]);
                    CHECK(relatively_close(total, expected, 1e-12));
                    CHECK(relatively_close(squares, expected_squares, 1e-12));
                    exec.threads = 1;
                    double again = 10;
                    cpu_kernels().sum(exec, &again, o[0]);
                    CHECK(again == total);
                }
}

TEST_CASE("norm and loss determine the clip factor and whether a step is refused") {
    Exec exec;
    const auto finish = [&](double squared_norm, double loss, double max_norm) {
        StepScalars s;
        s.squared_norm = squared_norm;
        s.loss = loss;
        cpu_kernels().finish_norm(exec, s, max_norm);
        return s;
    };
    CHECK(finish(16, 1, 1).grad_norm == 4);
    CHECK(finish(16, 1, 1).clip == 1 / (4 + 1e-6));
    CHECK(finish(16, 1, 1).refusals == 0);
    CHECK(finish(0.25, 1, 1).clip == 1);
    CHECK(finish(1, 1, 1).clip == 1 / (1 + 1e-6));
    CHECK(finish(16, 1, 0).clip == 1);
    CHECK(finish(0, 1, 1).clip == 1);
    CHECK(finish(infinity, 1, 1).refusals == 1);
    CHECK(finish(nan_value, 1, 1).refusals == 1);
    CHECK(finish(1, infinity, 1).refusals == 1);
    CHECK(finish(1, nan_value, 1).refusals == 1);
    const auto limited = [&](double squared_norm, double loss, double norm_limit, double loss_limit) {
        StepScalars s;
        s.squared_norm = squared_norm;
        s.loss = loss;
        s.norm_limit = norm_limit;
        s.loss_limit = loss_limit;
        s.refusals = 7;
        cpu_kernels().finish_norm(exec, s, 1);
        return s.refusals;
    };
    CHECK(limited(16, 3, 4, 3) == 0);
    CHECK(limited(16, 3, std::nextafter(4, 0), 3) == 1);
    CHECK(limited(16, 3, 4, std::nextafter(3, 0)) == 1);
    CHECK(limited(infinity, 3, infinity, infinity) == 1);
    CHECK(limited(16, 3, nan_value, 3) == 1);
}
