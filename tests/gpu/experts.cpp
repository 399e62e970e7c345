// SPDX-License-Identifier: Apache-2.0
// Products of experts by wgmma, which an H100 has and the emulated GPU too, with copies by cp.async or by
// TMA. On other GPUs mma computes them. And those of 8-bit floats by their codes.
#include "gpu/gpu.hpp"
#include "gpu/launches.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr ExpertsKernel by_wgmma[] = {ExpertsKernel::wgmma, ExpertsKernel::tma};

/// The name of the launch of a product by a kernel; on other GPUs than Hopper, mma computes it.
std::string launch_of(const std::string& product, ExpertsKernel kernel) {
    if (the_gpu().architecture() != 90 || kernel == ExpertsKernel::mma) return product;
    return product + "_" + name_of(kernel);
}

/// The case by this kernel.
KernelCase by(ExpertsKernel kernel, const KernelCase& c) {
    return with_options(c, {.experts = kernel});
}

std::vector<KernelCase> expert_products() {
    std::vector<KernelCase> list = test_cases();
    std::erase_if(list, [](const KernelCase& c) { return !c.name.starts_with("grouped_gemm"); });
    const size_t cases = list.size();
    for (size_t i = 0; i < cases; ++i) {
        KernelCase c = list[i];
        c.name += ", sums in float32";
        for (Argument& argument : c.arguments)
            if (argument.name == "d") argument.kind = Kind::acc;
        list.push_back(std::move(c));
    }
    return list;
}

/// A product of two groups whose elements are 1.
enum class Layout : uint8_t { t, n, weights };
struct TwoGroups {
    static constexpr int64_t first_rows = 304, second = 320, rows = 352, depth = 72, columns = 136;
    Layout layout;
    OwnedTensor a = ones({rows, depth}),
                b = ones(layout == Layout::t   ? Shape{2 * columns, depth}
                         : layout == Layout::n ? Shape{2 * depth, columns}
                                               : Shape{rows, columns}),
                d{layout == Layout::weights ? Dtype::f32 : Dtype::bf16,
                  {layout == Layout::weights ? 2 * depth : rows, columns},
                  "d",
                  the_gpu().memory()},
                places{Dtype::i32, {4}, "groups", the_gpu().memory()};

    explicit TwoGroups(Layout given) : layout(given) {
        const int32_t numbers[] = {0, second, first_rows, rows - second};
        the_gpu().copy(places.view.data, numbers, sizeof(numbers));
    }
    static void fill(const Tensor& t, float value) {
        const std::vector<bf16> values(size_t(t.count()), bf16(value));
        the_gpu().copy(t.data, values.data(), values.size() * sizeof(bf16));
    }
    static OwnedTensor ones(const Shape& shape) {
        OwnedTensor there(Dtype::bf16, shape, "operand", the_gpu().memory());
        fill(there.view, 1);
        return there;
    }
    /// Sets the second group's operands, and the rows between the groups.
    void fill_second(float value) const {
        fill(a.view.slice_rows(first_rows, rows - first_rows), value);
        const int64_t first = layout == Layout::weights ? first_rows : b.view.rows() / 2;
        fill(b.view.slice_rows(first, b.view.rows() - first), value);
    }
    void fill_first_of_a(float value) const { fill(a.view.slice_rows(0, first_rows), value); }
    std::string name() const { return layout == Layout::weights ? "grouped_gemm_weights" : "grouped_gemm"; }
    void give(Exec& exec) const {
        const Groups groups = {.begins = places.view.slice_rows(0, 2),
                               .counts = places.view.slice_rows(2, 2),
                               .assignments = rows};
        const Kernels& k = cuda_kernels();
        layout == Layout::weights
            ? k.grouped_gemm_weights(exec, d.view, a.view, b.view, {}, groups)
            : k.grouped_gemm(exec, d.view, a.view, {b.view, layout == Layout::t}, groups);
    }
    void multiply(Exec& exec) const {
        give(exec);
        exec.queue->finish();
    }
    /// The first group's part.
    std::vector<float> result() const {
        const int64_t count = (layout == Layout::weights ? depth : first_rows) * columns;
        std::vector<float> values(static_cast<size_t>(count));
        std::vector<bf16> halves(values.size());
        if (layout == Layout::weights) {
            the_gpu().copy(values.data(), d.view.data, values.size() * sizeof(float));
        } else {
            the_gpu().copy(halves.data(), d.view.data, halves.size() * sizeof(bf16));
            std::transform(halves.begin(), halves.end(), values.begin(), [](bf16 x) { return float(x); });
        }
        return values;
    }
    /// The largest magnitude between the groups; NaN if one is.
    double largest_between() const {
        if (layout == Layout::weights) return 0;
        std::vector<bf16> between(size_t((second - first_rows) * columns));
        the_gpu().copy(between.data(), d.view.slice_rows(first_rows, second - first_rows).data,
                       int64_t(between.size() * sizeof(bf16)));
        double largest = 0;
        for (const bf16 x : between) largest = worse_of(largest, std::abs(double(float(x))));
        return largest;
    }
    /// What result() should be, if elements of a are `value`.
    std::vector<float> expected(float value = 1) const {
        return std::vector<float>(result().size(),
                                  value * float(layout == Layout::weights ? first_rows : depth));
    }
};

void check_against(const Operands& truth, const Operands& result, const KernelCase& c) {
    for (size_t i = 0; i < c.arguments.size(); ++i) {
        INFO(c.name << ", " << c.arguments[i].name);
        if (c.arguments[i].role != Role::input)
            CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <= c.bound_bf16);
        CHECK(nothing_beside(c, result, i));
    }
}

}  // namespace

TEST_CASE("GPU kernels: products of experts by wgmma agree with double, and write nothing else") {
    for (const ExpertsKernel kernel : by_wgmma) {
        std::map<std::string, Launches> launches;  // by the beginning of a case's name
        for (const KernelCase& c : expert_products()) {
            Launches& seen = launches[c.name.substr(0, c.name.find_first_of("0123456789"))];
            const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16),
                           result = run_case_on(the_gpu(), by(kernel, c), Dtype::bf16, Dtype::bf16, 1, &seen);
            check_against(truth, result, c);
        }
        for (const std::string layout : {"grouped_gemm t ", "grouped_gemm n ", "grouped_gemm_weights "})
            CHECK(launches[layout].names.contains(launch_of(layout.substr(0, layout.find(' ')), kernel)));
    }
}

TEST_CASE("GPU kernels: products of experts in 8-bit floats by their codes agree with double") {
    Launches launches;
    for (const KernelCase& c : expert_cases()) {
        if (!c.name.starts_with("scaled_grouped_gemm")) continue;
        const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16),
                       result = run_case_on(the_gpu(), experts_in_8_bits(c, true), Dtype::bf16, Dtype::bf16,
                                            1, &launches);
        check_against(truth, result, c);
    }
    if (the_gpu().architecture() < 89) return;
    for (const char* const product : {"grouped_gemm_8_bit", "grouped_gemm_8_bit_weights"})
        CHECK(launches.names.contains(product));
}

TEST_CASE("GPU kernels: products of experts have the same bits each time, by mma, by wgmma and with TMA") {
    for (const KernelCase& c : expert_products()) {
        set_order(1);
        const auto result_with = [&](ExpertsKernel kernel) {
            return run_case_on(the_gpu(), by(kernel, c), Dtype::bf16, Dtype::bf16);
        };
        const Operands first = result_with(ExpertsKernel::mma);
        for (const uint64_t order : {2, 3, 4})
            for (const ExpertsKernel kernel : by_wgmma) {
                set_order(order);
                INFO(c.name << ", order " << order << ", by " << name_of(kernel));
                CHECK(same_bits(first, result_with(kernel)));
            }
    }
}

TEST_CASE("GPU kernels: products of experts by wgmma read nothing of another group") {
    for (const ExpertsKernel kernel : by_wgmma)
        for (const Layout layout : {Layout::t, Layout::n, Layout::weights}) {
            INFO(int(layout) << ", by " << name_of(kernel));
            const TwoGroups product(layout);
            Exec exec(the_gpu());
            set_product_options(exec, {.experts = kernel});
            Launches launches;
            const Observation observation = exec.observers.add(launches);
            product.fill_second(std::numeric_limits<float>::quiet_NaN());
            product.multiply(exec);
            CHECK(product.result() == product.expected());
            CHECK(product.largest_between() == 0);
            CHECK(launches.names == std::set{launch_of(product.name(), kernel)});
        }
}

TEST_CASE("GPU kernels: products of experts with TMA run in graphs") {
    for (const Layout layout : {Layout::t, Layout::n, Layout::weights}) {
        const TwoGroups product(layout);
        Exec exec(the_gpu());
        set_product_options(exec, {.experts = ExpertsKernel::tma});
        Launches launches;
        const Observation observation = exec.observers.add(launches);
        exec.queue->begin_recording();
        product.give(exec);
        const auto graph = exec.queue->end_recording();
        CHECK(launches.names == std::set{launch_of(product.name(), ExpertsKernel::tma)});
        for (const float value : {2.0f, 0.5f}) {
            product.fill_first_of_a(value);
            exec.queue->give(*graph);
            exec.queue->finish();
            CHECK(product.result() == product.expected(value));
        }
    }
}
