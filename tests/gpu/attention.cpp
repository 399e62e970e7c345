// SPDX-License-Identifier: Apache-2.0
// Attention cases that the common list leaves out: rows at any address, gradients that overwrite operands,
// long documents, queries that see no key. The kernels without tensor cores check those with tensor cores.
#include "coeus/kernels/own_attention.hpp"
#include "gpu/gpu.hpp"
#include "gpu/launches.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

Operands run_on_gpu(const KernelCase& c, Dtype type) {
    return run_case_on(the_gpu(), c, type, Dtype::bf16);
}

void check_against_double(const KernelCase& c) {
    const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16);
    const Operands result = run_on_gpu(c, Dtype::bf16);
    for (size_t i = 0; i < c.arguments.size(); ++i)
        if (c.arguments[i].role != Role::input) {
            INFO(c.name << ", " << c.arguments[i].name);
            CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <= c.bound_bf16);
        }
}

// The case by these kernels.
KernelCase by_own(OwnAttention which, const KernelCase& c) {
    KernelCase with = c;
    with.call = [call = c.call, which](const Kernels& kernels, Exec& exec, const Operands& operands) {
        choose_own_attention(exec, which);
        call(kernels, exec, operands);
    };
    return with;
}

// Those that wgmma computes: the backward of heads of these widths. Some have more tiles than places for
// them.
std::vector<KernelCase> wgmma_cases() {
    std::vector<KernelCase> list = test_cases();
    std::erase_if(list, [](const KernelCase& c) {
        const auto has_width = [&](const std::string& width) {
            const size_t at = c.name.find(" of " + width);
            return at != std::string::npos && c.name.compare(at + 4 + width.size(), 5, " and ") != 0;
        };
        return !c.name.starts_with("attention_backward") ||
               !(has_width("64") || has_width("128") || has_width("192 and 128"));
    });
    list.push_back(attention_case({1, 650, 2, 1, 64, 0.125}, true, true, true));
    list.push_back(attention_case({1, 333, 4, 1, 128, 0.09}, false, true, true, true));
    list.push_back(attention_case({1, 290, 2, 1, 192, 0.07, {}, {}, 128}, false, true));
    return list;
}

// Removes and counts infinities, which have no difference.
int64_t take_infinities(std::vector<double>& values) {
    int64_t count = 0;
    for (double& value : values)
        if (std::isinf(value)) {
            ++count;
            value = 0;
        }
    return count;
}

}  // namespace

TEST_CASE("GPU kernels: gradients of attention by wgmma and mma are as near to double, with fixed bits") {
    for (const KernelCase& c : wgmma_cases()) {
        const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16);
        Launches launches;
        set_order(1);
        const auto result_by = [&](OwnAttention which, Launches* seen = nullptr) {
            return run_case_on(the_gpu(), by_own(which, c), Dtype::bf16, Dtype::bf16, 1, seen);
        };
        const Operands result = result_by(OwnAttention::usual, &launches),
                       of_mma = result_by(OwnAttention::mma);
        const std::string kernel = the_gpu().architecture() == 90 ? "wgmma" : "mma";
        CHECK(launches.names.contains("attention_query_gradients_" + kernel));
        CHECK(launches.names.contains("attention_key_gradients_" + kernel));
        for (size_t i = 0; i < c.arguments.size(); ++i) {
            INFO(c.name << ", " << c.arguments[i].name);
            if (c.arguments[i].role != Role::input) {
                const auto error = [&](const Operands& of) {
                    return normalised_error(values_of(of[i]), values_of(truth[i]));
                };
                CHECK(error(of_mma) <= c.bound_bf16);
                CHECK(error(result) <= 1.02 * error(of_mma));
            }
            CHECK(nothing_beside(c, result, i));
        }
        set_order(2);
        CHECK(same_bits(result, result_by(OwnAttention::usual)));
    }
}

TEST_CASE("GPU kernels: attention accepts rows at any address") {
    for (const bool backward : {false, true}) {
        KernelCase c = attention_case({1, 50, 2, 1, 16, 0.25}, true, backward);
        for (Argument& argument : c.arguments)
            if (argument.kind == Kind::compute) argument.padding = 3;
        check_against_double(c);
    }
}

TEST_CASE("GPU kernels: gradients of attention may overwrite queries, keys and values") {
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        const AttentionShape s = {2, 150, 4, 2, 24, 0.2};
        const KernelCase beside = attention_case(s, true, true, true);
        KernelCase in_place = beside;
        in_place.call = [s](const Kernels& kernels, Exec& exec, const Operands& o) {
            kernels.attention_backward(exec, o[2], o[3], o[4], o[6], o[0], o[1], o[2], o[3], o[4], o[5], s,
                                       false);
        };
        const Operands expected = run_on_gpu(beside, type), result = run_on_gpu(in_place, type);
        INFO(name_of(type));
        for (size_t i = 0; i < 3; ++i) CHECK(values_of(result[2 + i]) == values_of(expected[7 + i]));
    }
}

TEST_CASE("GPU kernels: queries that see no key get zeros, -infinity, and no gradients") {
    // the first queries; whole blocks; all queries
    for (const AttentionShape& s : {AttentionShape{1, 70, 2, 1, 16, 0.25, {70}, {40, 30}},
                                    AttentionShape{1, 300, 1, 1, 64, 0.12, {300}, {100, 200}},
                                    AttentionShape{2, 20, 2, 2, 72, 0.12, {20}, {33, 20}},
                                    AttentionShape{1, 90, 1, 1, 192, 0.07, {90}, {50, 60}, 128},
                                    AttentionShape{1, 90, 1, 1, 256, 0.06, {90}, {50, 60}}})
        for (const bool backward : {false, true}) {
            const KernelCase c = attention_case(s, false, backward, false, backward);
            const Operands truth = run_on_gpu(c, Dtype::f32), result = run_on_gpu(c, Dtype::bf16);
            for (size_t i = 0; i < c.arguments.size(); ++i) {
                if (c.arguments[i].role == Role::input) continue;
                INFO(c.name << ", " << c.arguments[i].name);
                std::vector<double> expected = values_of(truth[i]), values = values_of(result[i]);
                const int64_t unseen = c.arguments[i].name == "lse"
                                           ? s.batch * s.heads * std::min(s.sequence, s.key_part.first)
                                           : 0;
                CHECK(take_infinities(expected) == unseen);
                CHECK(take_infinities(values) == unseen);
                CHECK(normalised_error(values, expected) <= c.bound_bf16);
            }
        }
}

TEST_CASE("GPU kernels: attention separates documents that are longer than tiles") {
    for (const int64_t head_dim : {64, 128, 256})
        for (const bool backward : {false, true}) {
            const AttentionShape s = {1, 400, 1, 1, head_dim, 0.1};
            KernelCase c = attention_case(s, true, backward);
            c.prepare = [=](const Kernels& kernels, Exec& exec, const Operands& o) {
                for (int64_t t = 0; t < s.sequence; ++t)
                    Tensor(o[5]).as<int32_t>()[t] = t < 100 ? 0 : t < 330 ? 100 : 330;
                if (backward) kernels.attention(exec, o[0], o[1], o[2], o[3], o[4], o[5], s);
            };
            check_against_double(c);
        }
}
