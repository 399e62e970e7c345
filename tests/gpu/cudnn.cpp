// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN, if there is one. The emulated GPU has a stand-in, which computes what our graph
// describes.
#include "coeus/kernels/cudnn.hpp"

#include "coeus/kernels/own_attention.hpp"
#include "gpu/gpu.hpp"
#include "gpu/launches.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>

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

// The lse of queries that see no key, as a number that no other has.
std::vector<double> finite(std::vector<double> values) {
    for (double& value : values)
        if (value == -std::numeric_limits<double>::infinity()) value = -1e3;
    return values;
}

void check_agrees(const KernelCase& c, const Operands& result) {
    const Operands truth = run_case(c, cpu_kernels(), Dtype::f64, Dtype::bf16);
    for (size_t i = 0; i < c.arguments.size(); ++i)
        if (c.arguments[i].role != Role::input) {
            INFO(c.name << ", " << c.arguments[i].name);
            CHECK(normalised_error(finite(values_of(result[i])), finite(values_of(truth[i]))) <=
                  c.bound_bf16);
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
        }
        CHECK_THAT(documents.why, Catch::Contains("document masks"));
        CHECK_THAT(odd.why, Catch::Contains("these have 36 and 36"));
    }
    const AttentionKernel one_token = kernel_of(attention_case({1, 1, 2, 1, 16, 0.25}, false, true));
    CHECK(one_token.by_cudnn.empty());
    CHECK_THAT(one_token.why, Catch::Contains("more than one token"));
    const AttentionKernel large = kernel_of(attention_case({2, 128, 4, 2, 64, 0.125}, false, true), 1 << 16);
    CHECK(large.is_refused);
    CHECK(large.why == "cuDNN's backward would need more than 65536 bytes of workspace");
    // cuDNN computes the forward only, of parts of sequences too
    const AttentionShape part = {1, 64, 2, 1, 64, 0.125, {64, 64}, {128}};
    for (const AttentionShape& s : {AttentionShape{2, 128, 4, 2, 64, 0.125}, part}) {
        CHECK_FALSE(kernel_of(attention_case(s, false, false), cudnn_forward_bytes).by_cudnn.empty());
        const AttentionKernel own = kernel_of(attention_case(s, false, true), cudnn_forward_bytes);
        CHECK(own.by_cudnn.empty());
        CHECK_FALSE(own.is_refused);
        CHECK(own.why == "kernels.attention = \"cudnn_forward\"");
    }
}

namespace {

// A rank of 4 has the runs of 16 tokens `rank` and 7 - rank.
constexpr int64_t ring_ranks = 4, run_tokens = 16, own_tokens = 2 * run_tokens;
SequencePart part_of(int64_t rank) {
    return {own_tokens, rank * run_tokens, 2 * (ring_ranks - 1 - rank) * run_tokens};
}
AttentionShape with_keys(SequencePart queries, SequencePart keys) {
    AttentionShape s = {2, own_tokens, 4, 2, 16, 0.25};
    s.query_part = queries;
    s.key_part = keys;
    return s;
}
// What rank 1 computes: with its own keys, those of an earlier and of a later rank, and all; what the first
// and the last rank compute with all keys, which are other blocks; with one run for each rank, keys before
// the queries, and keys of which none is seen; full attention to as many keys, and to more.
std::vector<AttentionShape> parts() {
    std::vector<AttentionShape> list;
    for (const int64_t other : {1, 0, 2}) list.push_back(with_keys(part_of(1), part_of(other)));
    for (const int64_t rank : {1, 0, 3}) list.push_back(with_keys(part_of(rank), {ring_ranks * own_tokens}));
    list.push_back(with_keys({own_tokens, own_tokens}, {own_tokens}));
    list.push_back(with_keys({own_tokens, 0}, {own_tokens, own_tokens}));
    for (const int64_t keys : {own_tokens, ring_ranks * own_tokens}) {
        list.push_back(with_keys({own_tokens}, {keys}));
        list.back().causal = false;
    }
    return list;
}

// A backward whose queries that see no key of the part have seen others.
KernelCase backward_of(const AttentionShape& s, bool in_float32) {
    KernelCase c = attention_case(s, false, true, in_float32, in_float32);
    c.prepare = [prepare = c.prepare](const Kernels& kernels, Exec& exec, const Operands& o) {
        prepare(kernels, exec, o);
        for (int64_t i = 0; i < o[1].count(); ++i)
            if (std::isinf(element(o[1], i))) set_element(o[1], i, 0.5);
    };
    return c;
}

// Only cuDNN's kernels compute it; ours merge or add what they give.
std::set<std::string> launches_of(const KernelCase& c) {
    Launches launches;
    run_case_on(the_gpu(), by_cudnn(c), Dtype::bf16, Dtype::bf16, 1, &launches);
    return launches.names;
}

// cuDNN computes parts that take at most so many bytes, each of them twice.
void check_parts_repeat(const KernelCase& c, std::initializer_list<int64_t> most_bytes) {
    for (const int64_t bytes : most_bytes) {
        INFO("cuDNN's part takes at most " << bytes << " bytes");
        REQUIRE_FALSE(kernel_of(c, bytes).by_cudnn.empty());
        const Operands first = run_by_cudnn(c, bytes);
        set_order(7);
        CHECK(same_bits(first, run_by_cudnn(c, bytes)));
        check_agrees(c, first);
    }
}

}  // namespace

TEST_CASE("GPU kernels: attention to parts of the keys is computed by cuDNN in blocks") {
    choose_cudnn();
    if (!has_cudnn()) return;
    using Names = std::set<std::string>;
    for (const AttentionShape& s : parts()) {
        // results in bfloat16 and in float32, columns of one matrix and dense
        for (const bool in_float32 : {false, true}) {
            const KernelCase forward = attention_case(s, false, false, in_float32, in_float32),
                             backward = backward_of(s, in_float32);
            check_agrees(forward, run_by_cudnn(forward));
            check_agrees(backward, run_by_cudnn(backward));
            const Names names = launches_of(forward);
            CHECK((names == Names{"merge_blocks"} || (names.empty() && !in_float32)));
            CHECK(launches_of(backward) == Names{"sum_blocks"});
        }
        const KernelCase merged = merge_attention_case(s, false);
        check_agrees(merged, run_by_cudnn(merged));
        CHECK(launches_of(merged) == Names{"merge_blocks"});
    }
}

TEST_CASE("GPU kernels: cuDNN's gradients for parts of the keys have the same bits each time") {
    choose_cudnn();
    if (!has_cudnn()) return;
    const AttentionShape s = with_keys(part_of(1), {ring_ranks * own_tokens});
    for (const bool added : {false, true}) {
        const KernelCase c = attention_case(s, false, true, true, added);
        // both sequences at once, one, and some heads of one
        check_parts_repeat(c, {int64_t(most_cudnn_bytes), int64_t(220) << 10, int64_t(120) << 10});
        check_agrees(c, run_by_cudnn(c, most_cudnn_bytes, false));
    }
}

TEST_CASE("GPU kernels: a ring needs three kernels of cuDNN in each direction, whatever its ranks") {
    choose_cudnn();
    if (!has_cudnn()) return;
    Exec planning;
    planning.cudnn_bytes = most_cudnn_bytes;
    const Kernels& kernels = dry_kernels_of(the_gpu().backend());
    for (int64_t rank = 0; rank < ring_ranks; ++rank)
        for (int64_t other = 0; other < ring_ranks; ++other) {
            const AttentionShape s = with_keys(part_of(rank), part_of(other));
            for (const KernelCase& c :
                 {attention_case(s, false, false, false, true), attention_case(s, false, true, false, true),
                  merge_attention_case(s, false)})
                c.call(kernels, planning, make_operands(c, Dtype::bf16, Dtype::bf16, 1));
        }
    const std::vector<AttentionCall> calls = planned_attention(planning);
    REQUIRE(calls.size() == 6);
    Exec exec(the_gpu());
    exec.cudnn_bytes = most_cudnn_bytes;
    use_cudnn(exec);
    std::set<std::string> texts;
    for (const AttentionCall& call : calls) {
        CHECK_FALSE(choose_kernel(exec, call).by_cudnn.empty());
        texts.insert(call.text());
    }
    CHECK(texts == std::set<std::string>{
                       "2 x 32 tokens, 4 heads of width 16, forward",
                       "2 x 32 tokens, 4 heads of width 16, backward",
                       "2 x 32 queries and 16 keys, 4 heads of width 16, forward",
                       "2 x 32 queries and 16 keys, 4 heads of width 16, backward",
                       "2 x 16 queries and 32 keys, 4 heads of width 16, forward",
                       "2 x 16 queries and 32 keys, 4 heads of width 16, backward",
                   });
}

TEST_CASE("GPU kernels: cuDNN's gradients of attention have the same bits each time, also in parts") {
    choose_cudnn();
    if (!has_cudnn()) return;
    // columns of one matrix; parts of two sequences, of one, and of some heads of one
    const KernelCase c = attention_case({4, 132, 4, 2, 16, 0.25}, false, true, true);
    const Operands whole = run_by_cudnn(c);
    check_agrees(c, whole);
    check_parts_repeat(c, {int64_t(most_cudnn_bytes), int64_t(1) << 19, int64_t(3) << 19, int64_t(3) << 18});
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
