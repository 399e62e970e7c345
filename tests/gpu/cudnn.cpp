// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN, if there is one. The emulated GPU has a stand-in, which computes what our graph
// describes.
#include "coeus/kernels/cudnn.hpp"

#include "gpu/gpu.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

bool has_cudnn() {
    Exec exec(the_gpu());
    try {
        use_cudnn(exec);
        return true;
    } catch (const ConfigError& error) {
        skip(error.what());
        return false;
    }
}

KernelCase by_cudnn(const KernelCase& c, int64_t cudnn_bytes = most_cudnn_bytes, bool deterministic = true) {
    KernelCase with = c;
    with.call = [=, call = c.call](const Kernels& kernels, Exec& exec, const Operands& operands) {
        exec.cudnn_bytes = cudnn_bytes;
        exec.deterministic = deterministic;
        if (!exec.device->is_host()) use_cudnn(exec);  // not for a dry run
        call(kernels, exec, operands);
    };
    return with;
}

void check_agrees(const KernelCase& c, const Operands& result) {
    const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16);
    for (size_t i = 0; i < c.arguments.size(); ++i)
        if (c.arguments[i].role != Role::input) {
            INFO(c.name << ", " << c.arguments[i].name);
            CHECK(normalised_error(values_of(result[i]), values_of(truth[i])) <= c.bound_bf16);
        }
}

Operands run_by_cudnn(const KernelCase& c, int64_t bytes = most_cudnn_bytes, bool deterministic = true) {
    return run_case_on(the_gpu(), by_cudnn(c, bytes, deterministic), Dtype::bf16, Dtype::bf16);
}

// What cuDNN answers when it is asked for the backward of `c`.
AttentionKernel kernel_of(const KernelCase& c, int64_t bytes = most_cudnn_bytes) {
    Exec planning, exec(the_gpu());
    planning.cudnn_bytes = exec.cudnn_bytes = bytes;
    planning.architecture = exec.architecture;
    c.call(dry_kernels_of(the_gpu().backend()), planning, make_operands(c, Dtype::bf16, Dtype::bf16, 1));
    const std::vector<AttentionCall> calls = planned_attention(planning);
    REQUIRE(calls.size() == 1);
    use_cudnn(exec);
    return choose_kernel(exec, calls.front());
}

}  // namespace

TEST_CASE("GPU kernels: attention by cuDNN agrees with double, and its lse serves our backward") {
    choose_cudnn();
    if (!has_cudnn()) return;
    // for cuDNN: batches, shared heads, odd lengths, columns of one matrix; not for cuDNN: documents, odd
    // widths
    for (const KernelCase& c : {attention_case({1, 64, 2, 2, 64, 0.125}, false, false),
                                attention_case({2, 77, 6, 3, 80, 0.11}, false, false),
                                attention_case({3, 33, 4, 1, 8, 0.35}, false, false, true),
                                attention_case({1, 40, 2, 1, 128, 0.09}, false, false),
                                attention_case({2, 50, 2, 1, 16, 0.25}, true, false),
                                attention_case({1, 30, 2, 1, 20, 0.2}, false, false),
                                attention_case({1, 64, 2, 2, 64, 0.125}, false, true),
                                attention_case({2, 77, 6, 3, 80, 0.11}, false, true),
                                attention_case({3, 33, 4, 1, 8, 0.35}, false, true, true),
                                attention_case({2, 50, 2, 1, 16, 0.25}, true, true),
                                attention_case({1, 1, 2, 1, 16, 0.25}, false, true),
                                attention_case({1, 30, 2, 1, 20, 0.2}, false, true),
                                attention_case({1, 40, 2, 1, 16, 0.2}, false, true, false, true)}) {
        check_agrees(c, run_by_cudnn(c));
    }
}

TEST_CASE("GPU kernels: cuDNN is asked for attention in the run's first step, not for what it cannot do") {
    choose_cudnn();
    if (!has_cudnn()) return;
    for (const bool backward : {false, true}) {
        CHECK_FALSE(kernel_of(attention_case({2, 128, 4, 2, 64, 0.125}, false, backward)).by_cudnn.empty());
        const AttentionKernel documents =
                                  kernel_of(attention_case({2, 128, 4, 2, 64, 0.125}, true, backward)),
                              odd = kernel_of(attention_case({2, 128, 4, 2, 36, 0.125}, false, backward));
        for (const AttentionKernel& own : {documents, odd}) {
            CHECK(own.by_cudnn.empty());
            CHECK_FALSE(own.is_refused);
            CHECK_THAT(own.why, Catch::Contains("whole sequences under the causal mask only"));
        }
    }
    const AttentionKernel added =
        kernel_of(attention_case({2, 128, 4, 2, 64, 0.125}, false, true, false, true));
    CHECK(added.by_cudnn.empty());
    CHECK_THAT(added.why, Catch::Contains("not added to others"));
    const AttentionKernel large = kernel_of(attention_case({2, 128, 4, 2, 64, 0.125}, false, true), 1 << 16);
    CHECK(large.is_refused);
    CHECK(large.why == "cuDNN's backward would need more than 65536 bytes of workspace");
}

TEST_CASE("GPU kernels: cuDNN's gradients of attention have the same bits each time, also in parts") {
    choose_cudnn();
    if (!has_cudnn()) return;
    // columns of one matrix; parts of two sequences, of one, and of some heads of one
    const KernelCase c = attention_case({4, 132, 4, 2, 16, 0.25}, false, true, true);
    const Operands whole = run_by_cudnn(c);
    check_agrees(c, whole);
    for (const int64_t bytes :
         {int64_t(most_cudnn_bytes), int64_t(1) << 19, int64_t(3) << 19, int64_t(3) << 18}) {
        INFO("cuDNN's part takes at most " << bytes << " bytes");
        REQUIRE_FALSE(kernel_of(c, bytes).by_cudnn.empty());
        const Operands first = run_by_cudnn(c, bytes);
        set_order(7);
        CHECK(same_bits(first, run_by_cudnn(c, bytes)));
        check_agrees(c, first);
    }
}

TEST_CASE("GPU kernels: if bits may differ, cuDNN's gradients need no matrix of scores") {
    choose_cudnn();
    if (!has_cudnn()) return;
    const KernelCase c = attention_case({1, 512, 4, 4, 16, 0.25}, false, true);
    check_agrees(c, run_by_cudnn(c, most_cudnn_bytes, false));
    const auto planned = [&](bool deterministic) {
        return planned_bytes(by_cudnn(c, most_cudnn_bytes, deterministic),
                             make_operands(c, Dtype::bf16, Dtype::bf16, 1), 1,
                             dry_kernels_of(the_gpu().backend()), the_gpu().architecture());
    };
    CHECK(planned(true) > 2 * 4 * 512 * 512);
    CHECK(planned(false) < planned(true) / 4);
}

TEST_CASE("GPU kernels: cuDNN's gradients of attention may overwrite queries, keys and values") {
    choose_cudnn();
    if (!has_cudnn()) return;
    const AttentionShape s = {2, 132, 4, 2, 16, 0.25};
    const KernelCase beside = attention_case(s, false, true, true);
    KernelCase in_place = beside;
    in_place.call = [s](const Kernels& kernels, Exec& exec, const Operands& o) {
        kernels.attention_backward(exec, o[2], o[3], o[4], o[6], o[0], o[1], o[2], o[3], o[4], {}, s, false);
    };
    for (const int64_t bytes : {int64_t(most_cudnn_bytes), int64_t(1) << 19}) {
        const Operands apart = run_by_cudnn(beside, bytes), same = run_by_cudnn(in_place, bytes);
        for (const size_t i : {0, 1, 2}) CHECK(values_of(apart[7 + i]) == values_of(same[2 + i]));
    }
}
