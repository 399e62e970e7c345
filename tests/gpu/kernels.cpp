// SPDX-License-Identifier: Apache-2.0
// The GPU kernels meet the requirements of tests/unit/kernels/table.cpp. No result depends on the order in
// which threads run between two barriers.
#include "coeus/base/random.hpp"
#include "coeus/state/step_state.hpp"
#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"
#include "support/support.hpp"

#include <cstdlib>

using namespace coeus;
using namespace coeus::test;

namespace {

Operands run_in_order(const KernelCase& c, uint64_t order) {
    set_order(order);
    return run_case_on(the_gpu(), c, Dtype::bf16, Dtype::bf16);
}

// All cases, or every seventh if a tool makes each of them slow (COEUS_GPU_CASES=few).
std::vector<KernelCase> cases() {
    std::vector<KernelCase> all = test_cases();
    if (!std::getenv("COEUS_GPU_CASES")) return all;
    size_t number = 0;
    std::erase_if(all, [&](const KernelCase&) { return number++ % 7 != 0; });
    return all;
}

}  // namespace

TEST_CASE("GPU kernels agree with double, write all of their outputs and nothing else") {
    for (const KernelCase& c : cases())
        for (Dtype type : types_of(c, {Dtype::f32, Dtype::bf16})) {
            const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type);
            const Operands result = run_case_on(the_gpu(), c, type, type);
            for (size_t i = 0; i < c.arguments.size(); ++i) {
                const Argument& argument = c.arguments[i];
                INFO(c.name << ", " << argument.name << " in " << name_of(type));
                if (argument.role != Role::input) {
                    const double error = normalised_error(values_of(result[i]), values_of(truth[i]));
                    const double more = c.sums_8_bits ? error_of_8_bit_sums() : 0;
                    CHECK(error <= (type == Dtype::f32 ? c.bound_f32 : c.bound_bf16) + more);
                }
                CHECK(nothing_beside(c, result, i));
            }
        }
}

TEST_CASE("GPU kernels: Adam rounds each element by its index in the whole parameter, as the CPU does") {
    struct Case {
        int64_t count, run;
        uint64_t first, stride;
        int64_t padding;  // elements before the first one, so that it is not aligned to packs of 16 bytes
    };
    for (const Case& of :
         {Case{4096, 0, 0, 0, 0}, Case{1003, 0, 7, 0, 0}, Case{1003, 0, 6, 0, 1}, Case{1024, 64, 128, 256, 0},
          Case{1001, 13, 5, 29, 0}, Case{1000, 2, 0, 5, 0}, Case{999, 1, 3, 3, 3}}) {
        CAPTURE(of.count, of.run, of.first, of.padding);
        AdamOptions adam;
        adam.seed = 3;
        const ElementPlace place = {
            .stream = stream_of("test"), .first_index = of.first, .run = of.run, .stride = of.stride};
        KernelCase c;
        // no gradient and no first moment: one multiplication per element is left, which all devices round
        // alike
        for (const char* name : {"master", "exp_avg", "exp_avg_sq", "compute"})
            c.arguments.push_back({name, Role::update, Kind::compute, {of.count + of.padding}, 1, 0.2});
        c.arguments.push_back({"grad", Role::update, Kind::acc, {of.count + of.padding}});
        c.call = [&](const Kernels& kernels, Exec& exec, const Operands& o) {
            kernels.zero(exec, o[1]);
            kernels.zero(exec, o[4]);
            const auto part = [&](size_t i) { return o[i].slice_rows(of.padding, of.count); };
            StepState state(*exec.device);
            StepScalars scalars;
            scalars.step = 4;
            scalars.groups[0].learning_rate = 0.3;
            scalars.groups[0].weight_decay = 0.1;
            scalars.groups[0].set_factors();
            state.stage(scalars);
            state.bring(exec);
            kernels.adam(exec, {part(0), part(1), part(2), part(4), part(3)}, adam, place, state.scalars());
            exec.queue->finish();
        };
        CHECK(same_bits(run_case(c, cpu_kernels(), Dtype::bf16, Dtype::bf16),
                        run_case_on(the_gpu(), c, Dtype::bf16, Dtype::bf16)));
    }
}

TEST_CASE("GPU kernels: initial values have the bits of the CPU's") {
    for (const KernelCase& c : draw_cases())
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            CAPTURE(c.name, name_of(type));
            CHECK(same_bits(run_case(c, cpu_kernels(), type, type), run_case_on(the_gpu(), c, type, type)));
        }
}

TEST_CASE("GPU kernels: the embedding's gradient adds tokens in their order, as the CPU does") {
    struct Case {
        int64_t tokens, width, vocabulary;
        bool divided = false;
    };
    for (const Case& of : {Case{1, 8, 11},              // a token that occurs once
                           Case{300, 7, 1},             // one token only
                           Case{3000, 40, 25},          // many of each, several for each thread of the sort
                           Case{1100, 16, 2000, true},  // most outside the part
                           Case{2500, 264, 70000}})     // most of them once; five digits
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            const KernelCase c = embedding_backward_case(of.tokens, of.width, of.vocabulary, of.divided);
            CAPTURE(c.name, name_of(type));
            CHECK(same_bits(run_case(c, cpu_kernels(), type, type), run_case_on(the_gpu(), c, type, type)));
        }
}

TEST_CASE("GPU kernels give the same bits each time") {
    Part part("orders of threads", 1, {.check_all = 1, .short_list = 2});
    for (const KernelCase& c : cases()) {
        const Operands first = run_in_order(c, 1);
        for (uint64_t order : {2, 3}) {
            if (!part.takes_next()) continue;
            INFO(c.name << ", order " << order);
            CHECK(same_bits(first, run_in_order(c, order)));
        }
    }
}
