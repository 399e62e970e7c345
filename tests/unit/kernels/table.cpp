// SPDX-License-Identifier: Apache-2.0
// Requirements on every kernel, checked in one loop over the shared list of cases:
// - float32 and bf16 agree with double.
// - Outputs are written completely, whatever the memory contained, and nothing else is written.
// - The bits do not depend on the number of threads.
// - The planned workspace is sufficient.
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/library_products.hpp"
#include "support/support.hpp"

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("kernels agree with double within the bound of the type") {
    for (const KernelCase& c : test_cases())
        for (Dtype type : types_of(c, {Dtype::f32, Dtype::bf16})) {
            const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, type);
            const Operands result = run_case(c, cpu_kernels(), type, type);
            for (size_t i = 0; i < c.arguments.size(); ++i) {
                if (c.arguments[i].role == Role::input) continue;
                INFO(c.name << ", " << c.arguments[i].name << " in " << name_of(type));
                const double error = normalised_error(values_of(result[i]), values_of(truth[i]));
                CHECK(error <= (type == Dtype::f32 ? c.bound_f32 : c.bound_bf16));
            }
        }
}

TEST_CASE("kernels write their outputs completely and nothing else") {
    for (const KernelCase& c : test_cases())
        for (Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
            const Operands before = make_operands(c, type, type);
            const Operands after = run_case(c, cpu_kernels(), type, type);
            for (size_t i = 0; i < c.arguments.size(); ++i) {
                const Argument& argument = c.arguments[i];
                INFO(c.name << ", " << argument.name << " in " << name_of(type));
                if (argument.role != Role::input)
                    for (double value : values_of(after[i])) REQUIRE(std::isfinite(value));
                CHECK(nothing_beside(c, after, i));
            }
        }
}

TEST_CASE("kernels give the same bits for any number of threads") {
    for (const KernelCase& c : test_cases())
        for (Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
            INFO(c.name << " in " << name_of(type));
            const Operands one = run_case(c, cpu_kernels(), type, type, 1);
            CHECK(same_bits(one, run_case(c, cpu_kernels(), type, type, 2)));
            CHECK(same_bits(one, run_case(c, cpu_kernels(), type, type, 3)));
        }
}

TEST_CASE("kernels use exactly the workspace that dry kernels plan") {
    for (const KernelCase& c : test_cases())
        for (Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
            const Operands operands = prepared_operands(c, type, type);
            for (int threads : {1, 2, 5}) {
                INFO(c.name << " in " << name_of(type) << ", " << threads << " threads");
                PlannedExec exec(c, operands, threads);
                c.call(cpu_kernels(), exec, operands);
                const bool by_library = library_multiplies(type) && c.name.find("gemm") != std::string::npos;
                const int64_t planned = planned_bytes(c, operands, threads), used = exec.workspace.peak();
                CHECK((by_library ? used <= planned : used == planned));
                CHECK(exec.workspace.mark() == 0);
            }
        }
}

TEST_CASE("a seed chooses one type for each case, and each type for some case") {
    const char* const given = std::getenv("COEUS_CASES_SEED");
    const std::string before = given ? given : "";
    const std::vector<Dtype> both = {Dtype::f32, Dtype::bf16};
    std::set<Dtype> chosen;
    setenv("COEUS_CASES_SEED", "1", 1);
    for (const KernelCase& c : test_cases()) {
        const std::vector<Dtype> types = types_of(c, both);
        CHECK(types.size() == 1);
        chosen.insert(types.begin(), types.end());
    }
    CHECK(chosen == std::set<Dtype>(both.begin(), both.end()));
    unsetenv("COEUS_CASES_SEED");
    CHECK(types_of(test_cases().front(), both) == both);
    if (given) setenv("COEUS_CASES_SEED", before.c_str(), 1);
}

TEST_CASE("an observer sees each call with its cost") {
    struct Seen : KernelObserver {
        std::string names;
        double flops = 0, bytes = 0;
        int open = 0;
        std::vector<Tensor> tensors;
        void begin(const char* kernel, double f, double b) override {
            names += std::string(kernel) + " ";
            flops += f;
            bytes += b;
            ++open;
        }
        void operands(std::span<const Tensor> all) override { tensors.assign(all.begin(), all.end()); }
        void end() override { --open; }
    };
    for (const Kernels* kernels : {&cpu_kernels(), &dry_kernels()}) {
        Seen seen;
        Exec exec;
        exec.workspace = Arena(1 << 16, "test");
        const Observation observation = exec.observers.add(seen);
        OwnedTensor d(Dtype::f32, {2, 3}), a(Dtype::f32, {2, 5}), b(Dtype::f32, {3, 5});
        kernels->gemm(exec, d, a.view, transposed(b), {});
        CHECK(seen.names == "gemm ");
        CHECK(seen.flops == 2 * 2 * 3 * 5);
        CHECK(seen.bytes == 4 * (2 * 3 + 2 * 5 + 3 * 5));
        CHECK(seen.open == 0);
        REQUIRE(seen.tensors.size() == 4);
        CHECK(seen.tensors[0].data == d.view.data);
        CHECK(seen.tensors[1].data == a.view.data);
        CHECK(seen.tensors[2].data == b.view.data);
        CHECK_FALSE(seen.tensors[3]);
        kernels->zero(exec, d);
        CHECK(seen.names == "gemm zero ");
    }
    CHECK(std::string(cpu_kernels().name) == "cpu");
    CHECK(std::string(dry_kernels().name) == "dry");
}

TEST_CASE("the cost of attention counts the scores that its masks leave") {
    struct Flops : KernelObserver {
        double all = 0;
        void begin(const char*, double flops, double) override { all += flops; }
        void end() override {}
    };
    const auto flops = [](const AttentionShape& s) {
        const KernelCase c = attention_case(s, false, false);
        const Operands operands = make_operands(c, Dtype::f32, Dtype::f32);
        Flops seen;
        Exec exec;
        const Observation observation = exec.observers.add(seen);
        c.call(dry_kernels(), exec, operands);
        return seen.all;
    };
    AttentionShape s = {2, 10, 3, 1, 4, 0.5};
    constexpr double of_a_pair = 2 * (4 + 4), causal_pairs = 2 * 3 * 55, all_pairs = 2 * 3 * 100;
    CHECK(flops(s) == of_a_pair * causal_pairs);
    s.causal = false;
    CHECK(flops(s) == of_a_pair * all_pairs);
    s.key_part = {7, 30, 2};
    CHECK(flops(s) == of_a_pair * 2 * 3 * 10 * 7);
}

TEST_CASE("full attention with another mask, or with a cache, is refused") {
    const Kernels& k = cpu_kernels();
    AttentionShape full = {1, 4, 1, 1, 2, 0.5};
    full.causal = false;
    const auto refused = [&](const KernelCase& c, const std::string& why) {
        const Operands operands = prepared_operands(c, Dtype::f32, Dtype::f32);
        PlannedExec exec(c, operands, 1);
        CHECK_THROWS_WITH(c.call(k, exec, operands), Catch::Contains(why));
    };
    const std::string why = "full attention has no windows, chunks or documents";
    AttentionShape window = full, chunk = full;
    window.window = 2;
    chunk.chunk = 2;
    for (const AttentionShape& s : {window, chunk}) refused(attention_case(s, false, false), why);
    refused(attention_case(full, true, false), why);
    refused(attention_cached_case(full, 1), "full attention has no cache");
}

TEST_CASE("kernels refuse operands that do not fit") {
    Exec exec;
    exec.workspace = Arena(1 << 20, "test");
    OwnedTensor d(Dtype::f32, {2, 3}), a(Dtype::f32, {2, 5}), b(Dtype::f32, {3, 4}),
        index(Dtype::i32, {2, 3});
    const Kernels& k = cpu_kernels();
    CHECK_THROWS_WITH(k.gemm(exec, d, a.view, transposed(b), {}), Catch::Contains("shapes do not fit"));
    CHECK_THROWS_WITH(k.cast(exec, d, index), Catch::Contains("int32") && Catch::Contains("takes floats"));
    OwnedTensor tokens(Dtype::i32, {2}), table(Dtype::f32, {4, 3});
    set_element(tokens, 1, 4);
    CHECK_THROWS_WITH(k.embedding(exec, d, tokens, table, {0, 4}), Catch::Contains("outside the vocabulary"));
    // two sequences have scales, and the rows are of three
    const OwnedTensor x(Dtype::f32, {5, 3}), scale(Dtype::f32, {2, 3}), losses(Dtype::f32, {5}),
        weights(Dtype::f32, {2});
    const SequenceRows sequences = {.first = 0, .length = 2};
    CHECK_THROWS_WITH(k.modulate(exec, x, {}, x, {}, scale, sequences, 0),
                      Catch::Contains("modulate: operands differ in shape"));
    CHECK_THROWS_WITH(k.squared_error(exec, losses, {}, x, x, weights, sequences, {}),
                      Catch::Contains("squared_error: operands differ in shape"));
    CHECK_THROWS_WITH(k.activation(exec, d, x, Activation::silu),
                      Catch::Contains("activation: operands differ in shape"));
}
