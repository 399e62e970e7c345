// SPDX-License-Identifier: Apache-2.0
// The emulated products of a warpgroup: the layouts of the PTX ISA, and what is reported if a kernel breaks a
// rule.
#include "../../../src/kernels/cuda/ptx/wgmma.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <functional>
#include <random>
#include <vector>

using namespace coeus;
using namespace coeus::cuda;

namespace {

constexpr int left_rows = 64, right_columns = warpgroup_columns, step_depth = panel_side;
constexpr size_t panels_bytes = size_t(left_rows + right_columns) * step_depth * sizeof(bf16) + swizzle_bytes;

void run_warpgroup(const std::function<void()>& body, size_t bytes = panels_bytes,
                   unsigned threads = warpgroup_threads) {
    emulation::run_grid(dim3(1), dim3(threads), bytes, body);
}

// Small whole numbers, whose products and sums are exact.
std::vector<bf16> whole_numbers(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<bf16> list(count);
    for (bf16& x : list) x = bf16(float(int(random() % 9) - 4));
    return list;
}

// The byte of an element within an operand that begins at a multiple of 1024, as CUTLASS writes these
// layouts: Swizzle<3,4,3> of ((8,i):(64,SBO)) x (64:1) in elements if the depth is contiguous, and of
// ((64,i):(1,LBO)) x ((8,k):(64,SBO)) otherwise; here SBO is 1024 bytes and LBO 8192.
unsigned byte_of(bool deep, int i, int depth) {
    const int plain = deep ? i / 8 * 1024 + i % 8 * 128 + depth * 2
                           : i % 64 * 2 + i / 64 * 8192 + depth % 8 * 128 + depth / 8 * 1024;
    return unsigned(plain) ^ (unsigned(plain) & 0x380u) >> 3;
}

// Copies an operand piece by piece, from a source in the order of its bytes in shared memory.
std::vector<bf16> in_layout(const std::vector<bf16>& values, bool deep, int count) {
    std::vector<bf16> bytes(values.size());
    for (int i = 0; i < count; ++i)
        for (int depth = 0; depth < step_depth; ++depth)
            bytes[byte_of(deep, i, depth) / sizeof(bf16)] = values[size_t(i * step_depth + depth)];
    return bytes;
}

void copy_all(bf16* to, const std::vector<bf16>& from) {
    for (size_t at = threadIdx.x * piece; at < from.size(); at += warpgroup_threads * piece)
        copy_async<16>(to + at, from.data() + at, false);
}

struct WholeOperands {
    std::vector<bf16> left = whole_numbers(size_t(left_rows) * step_depth, 1),
                      right = whole_numbers(size_t(right_columns) * step_depth, 2);
};

template <bool left_deep, bool right_deep>
void check_product() {
    const WholeOperands o;
    const std::vector<bf16> left = in_layout(o.left, left_deep, left_rows),
                            right = in_layout(o.right, right_deep, right_columns);
    std::vector<float> result(size_t(left_rows) * right_columns), early(1);
    run_warpgroup([&] {
        bf16* const memory = first_panel(shared_memory());
        bf16* const to_right = memory + panel_elements;
        copy_all(memory, left);
        copy_all(to_right, right);
        end_copies();
        wait_for_copies_to_multiply<0>();
        __syncthreads();
        WarpgroupSums sums;
        for (Sums& s : sums)
            for (float& x : s.values) x = 1;
        begin_products();
        for (int at = 0; at < step_depth; at += warpgroup_depth)
            start_product<left_deep, right_deep>(sums, operand_of<left_deep>(memory, at),
                                                 operand_of<right_deep>(to_right, at));
        end_products();
        if (threadIdx.x == 0) early[0] = sums[0].values[0];
        wait_for_products<0>();
        // "the layout of the fragment of matrix D": thread t of warp w has rows 16 w + t / 4 and 8 further
        const int row = int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4,
                  column = int(threadIdx.x) % 4 * 2;
        for (int i = 0; i < right_columns / 2; ++i)
            result[size_t((row + i / 2 % 2 * 8) * right_columns + i / 4 * 8 + column + i % 2)] =
                sums[i / 4].values[i % 4];
    });
    CHECK(std::isnan(early[0]));
    size_t wrong = 0;
    for (size_t i = 0; i < left_rows; ++i)
        for (size_t j = 0; j < right_columns; ++j) {
            float expected = 1;
            for (size_t depth = 0; depth < step_depth; ++depth)
                expected += float(o.left[i * step_depth + depth]) * float(o.right[j * step_depth + depth]);
            wrong += result[i * right_columns + j] != expected;
        }
    CHECK(wrong == 0);
}

// The left operand in registers, as "the layout of the fragment of matrix A" has it, and fewer columns.
template <int columns, bool right_deep>
void check_product_of_registers() {
    const WholeOperands o;
    const std::vector<bf16> right = in_layout(o.right, right_deep, right_columns);
    std::vector<float> result(size_t(left_rows) * columns);
    run_warpgroup([&] {
        bf16* const memory = first_panel(shared_memory());
        copy_all(memory, right);
        end_copies();
        wait_for_copies_to_multiply<0>();
        __syncthreads();
        const int row = int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4,
                  column = int(threadIdx.x) % 4 * 2;
        Sums sums[columns / 8] = {};
        begin_products();
        for (int at = 0; at < step_depth; at += warpgroup_depth) {
            const auto pair = [&](int i, int depth) {
                const auto element = [&](int place) {
                    return float(o.left[size_t(i * step_depth + at + place)]);
                };
                return pair_of(element(depth), element(depth + 1));
            };
            const Fragment left = {
                {pair(row, column), pair(row + 8, column), pair(row, column + 8), pair(row + 8, column + 8)}};
            start_product<right_deep>(sums, left, operand_of<right_deep>(memory, at));
        }
        end_products();
        wait_for_products<0>();
        for (int i = 0; i < columns / 2; ++i)
            result[size_t((row + i / 2 % 2 * 8) * columns + i / 4 * 8 + column + i % 2)] =
                sums[i / 4].values[i % 4];
    });
    size_t wrong = 0;
    for (size_t i = 0; i < left_rows; ++i)
        for (size_t j = 0; j < columns; ++j) {
            float expected = 0;
            for (size_t depth = 0; depth < step_depth; ++depth)
                expected += float(o.left[i * step_depth + depth]) * float(o.right[j * step_depth + depth]);
            wrong += result[i * columns + j] != expected;
        }
    CHECK(wrong == 0);
}

// What a thread does between the copies and the end of a kernel that is right otherwise.
struct KernelSteps {
    std::function<void()> after_copies = [] { wait_for_copies_to_multiply<0>(); };
    std::function<void()> before_product = [] { begin_products(); };
    std::function<uint64_t(uint64_t)> change = [](uint64_t operand) { return operand; };
    std::function<void(bf16*)> after_product = [](bf16*) {};
    std::function<void()> at_end = [] { wait_for_products<0>(); };
};

void run_steps(const KernelSteps& steps) {
    const WholeOperands o;
    run_warpgroup([&] {
        bf16* const memory = first_panel(shared_memory());
        copy_all(memory, o.left);
        copy_all(memory + panel_elements, o.right);
        end_copies();
        steps.after_copies();
        __syncthreads();
        WarpgroupSums sums = {};
        steps.before_product();
        start_product<true, true>(sums, steps.change(operand_of<true>(memory, 0)),
                                  operand_of<true>(memory + panel_elements, 0));
        end_products();
        steps.after_product(memory);
        steps.at_end();
        wait_for_copies();
    });
}

}  // namespace

TEST_CASE("wgmma: products of operands in both layouts, with sums at the places of PTX") {
    check_product<true, true>();
    check_product<true, false>();
    check_product<false, true>();
    check_product<false, false>();
}

TEST_CASE("wgmma: products of rows in registers, with 64, 128 and 192 columns") {
    check_product_of_registers<64, true>();
    check_product_of_registers<128, false>();
    check_product_of_registers<192, false>();
}

TEST_CASE("wgmma: places in a panel are those of the 128-byte swizzle") {
    for (int row = 0; row < panel_side; ++row)
        for (int at = 0; at < panel_side / piece; ++at)
            CHECK(unsigned(place_in_panel(row, at)) * sizeof(bf16) == byte_of(true, row, at * piece));
}

TEST_CASE("wgmma: broken rules are reported") {
    CHECK_NOTHROW(run_steps({}));
    const auto says = [](const KernelSteps& steps, const std::string& what) {
        CHECK_THROWS_WITH(run_steps(steps), Catch::Contains(what));
    };
    says({.after_copies = [] {}}, "whose copy is under way");
    says({.after_copies = [] { wait_for_copies(); }}, "without a fence.proxy.async");
    says({.before_product = [] {}}, "without a wgmma.fence");
    says({.change = [](uint64_t operand) { return operand + 8; }}, "multiple of 1024 bytes");
    says({.change = [](uint64_t operand) { return operand & ~(uint64_t(3) << 62); }}, "128-byte swizzle");
    says({.change = [](uint64_t operand) { return operand + (panels_bytes + 1024) / 1024 * 64; }},
         "outside of the block's shared memory");
    says({.change = [](uint64_t operand) { return operand + threadIdx.x % 2 * 64; }}, "different operands");
    says({.after_product =
              [](bf16* memory) {
                  __syncthreads();
                  copy_async<16>(memory, nullptr, true);
              }},
         "overwrites an operand");
    says({.at_end = [] {}}, "leaves while a wgmma is under way");
    says({.at_end = [] { wait_for_products<1>(); }}, "leaves while a wgmma is under way");
    CHECK_THROWS_WITH(run_warpgroup(begin_products, 0, 32),
                      Catch::Contains("a warpgroup without all of its warps"));
    CHECK_THROWS_WITH(run_warpgroup([] {
                          WarpgroupSums sums = {};
                          begin_products();
                          start_product<true, true>(sums, operand_of<true>(first_panel(shared_memory()), 0),
                                                    0);
                      }),
                      Catch::Contains("that no copy has written"));
    CHECK_THROWS_WITH(run_warpgroup([] { copy_async<16>(shared_memory() + panels_bytes, nullptr, true); }),
                      Catch::Contains("a copy to outside"));
}

TEST_CASE("wgmma: copies of adjacent words may be under way together, two of the same word may not") {
    const auto copy_words = [](unsigned threads_of_word) {
        run_warpgroup([&] {
            for (int times = 0; times < 2; ++times) {
                copy_async<4>(shared_memory() + threadIdx.x / threads_of_word * 4, nullptr, true);
                __syncthreads();
                wait_for_copies();
                __syncthreads();
            }
        });
    };
    CHECK_NOTHROW(copy_words(1));
    CHECK_THROWS_WITH(copy_words(2), Catch::Contains("a copy overwrites another that is under way"));
}

TEST_CASE("wgmma: all warps of a warpgroup multiply, and each gets a set of sums when it is done") {
    const WholeOperands o;
    const auto run_products =
        [&](const std::function<void(const std::function<void(WarpgroupSums&)>&)>& body) {
            run_warpgroup([&] {
                bf16* const memory = first_panel(shared_memory());
                copy_all(memory, o.left);
                copy_all(memory + panel_elements, o.right);
                wait_for_copies_to_multiply<0>();
                end_copies();
                wait_for_copies_to_multiply<0>();
                __syncthreads();
                body([memory](WarpgroupSums& sums) {
                    begin_products();
                    start_product<true, true>(sums, operand_of<true>(memory, 0),
                                              operand_of<true>(memory + panel_elements, 0));
                    end_products();
                });
                wait_for_products<0>();
            });
        };
    CHECK_THROWS_WITH(run_products([](const auto& product) {
                          WarpgroupSums sums = {};
                          if (threadIdx.x >= warp_size) product(sums);
                          wait_for_products<0>();
                      }),
                      Catch::Contains("different numbers of wgmma"));
    bool first_is_there = false, second_is_there = true;
    run_products([&](const auto& product) {
        WarpgroupSums sums = {}, others = {};
        product(sums);
        product(others);
        wait_for_products<1>();
        if (threadIdx.x == 0) {
            first_is_there = !std::isnan(sums[0].values[0]);
            second_is_there = !std::isnan(others[0].values[0]);
        }
        wait_for_products<0>();
    });
    CHECK(first_is_there);
    CHECK_FALSE(second_is_there);
    CHECK_THROWS_WITH(run_products([](const auto& product) {
                          WarpgroupSums sums = {};
                          product(sums);
                          const bf16* const memory = first_panel(shared_memory());
                          begin_products();
                          start_product<true, true>(reinterpret_cast<Sums(&)[8]>(sums),
                                                    operand_of<true>(memory, 0),
                                                    operand_of<true>(memory + panel_elements, 0));
                      }),
                      Catch::Contains("to sums of another width, which are under way"));
    CHECK_THROWS_WITH(run_products([](const auto& product) {
                          WarpgroupSums sums = {};
                          product(sums);
                          const bf16* const memory = first_panel(shared_memory());
                          begin_products();
                          start_product<true, true, false>(sums, operand_of<true>(memory, 0),
                                                           operand_of<true>(memory + panel_elements, 0));
                      }),
                      Catch::Contains("does not add, to sums that are under way"));
}
