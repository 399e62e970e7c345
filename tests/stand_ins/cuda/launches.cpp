// SPDX-License-Identifier: Apache-2.0
// Prints how each CUDA kernel is launched, for tools/kernel_resources.py: the kernel's address relative to
// the program, the threads of a block, and the bytes of their dynamic shared memory, each as the launch with
// most threads (of these, the one with most memory) has them. The launches are those of the tests' cases, at
// sizes for tests and at those of a training step, and of types that cases do not combine. The kernels do not
// run.
#include "coeus/base/log.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/cudnn.hpp"
#include "coeus/state/step_state.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "support/cases.hpp"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <utility>

// the first byte of the program, as the linker defines it
extern "C" const char __executable_start;

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr auto types = {Dtype::f32, Dtype::bf16};

void run_cases(const std::vector<KernelCase>& cases) {
    const auto gpu = open_gpu(0);
    for (const KernelCase& c : cases)
        if (!c.name.starts_with("gemm"))  // the products of cuBLASLt
            for (const Dtype type : types) run_case_on(*gpu, c, type, type);
}

// rows for blocks of 256 threads
std::vector<KernelCase> wide_cases() {
    std::vector<KernelCase> list = step_cases({.tokens = 32,
                                               .sequence = 16,
                                               .width = 2048,
                                               .heads = 16,
                                               .kv_heads = 16,
                                               .feed_forward = 2048,
                                               .vocabulary = 2048});
    // products are cuBLASLt's, and AdamW's blocks do not depend on sizes
    std::erase_if(
        list, [](const KernelCase& c) { return c.name.starts_with("gemm") || c.name.starts_with("adam"); });
    return list;
}

// What adds up cuDNN's results for blocks of scores: attention of the first of two context-parallel ranks to
// all keys.
void run_sums_of_blocks() {
    setenv("COEUS_CUDNN", "stand-in", 1);
    const auto gpu = open_gpu(0);
    Exec exec(*gpu);
    exec.workspace = Arena(32 << 20, "workspace", gpu->memory());
    exec.cudnn_bytes = most_cudnn_bytes;
    use_cudnn(exec);
    const AttentionShape s = {1, 32, 32, 32, 128, 0.1, {32, 0, 32}, {64}};
    const Shape queries = {32, 4096}, keys = {64, 4096};
    const OwnedTensor memory(Dtype::u8, {2 << 20}, "operands", gpu->memory());
    const auto operand = [&](Dtype type, const Shape& shape) {
        return Tensor(memory.view.data, type, shape);
    };
    const Tensor q = operand(Dtype::bf16, queries), k = operand(Dtype::bf16, keys),
                 lse = operand(Dtype::f32, {32, 32});
    for (const Dtype type : types) {
        cuda_kernels().attention(exec, operand(type, queries), lse, q, k, k, {}, s);
        cuda_kernels().attention_backward(exec, operand(type, queries), operand(type, keys),
                                          operand(type, keys), q, q, lse, q, k, k, {}, s, false);
    }
    exec.queue->finish();
}

// Types that the cases do not combine.
void run_other_types() {
    const auto gpu = open_gpu(0);
    Exec exec(*gpu);
    exec.workspace = Arena(1 << 20, "workspace", gpu->memory());
    const Kernels& k = cuda_kernels();
    const OwnedTensor memory(Dtype::u8, {64 << 20}, "operands", gpu->memory());
    const auto operand = [&](Dtype type, const Shape& shape) {
        return Tensor(memory.view.data, type, shape);
    };
    const StepState state(*gpu);
    StepScalars& scalars = state.scalars();
    const Shape row = {4096};
    for (const Dtype master : types)
        for (const Dtype type : types) {
            const Tensor copy = operand(type, row);
            Tensor with_largest = copy;
            with_largest.largest = memory.view.data;
            with_largest.largest_cols = copy.cols();
            for (const Tensor& weights : {copy, with_largest}) {
                for (const Dtype moment : types) {
                    if (master == Dtype::bf16 && moment == Dtype::f32) continue;
                    const bool may_be_bf16 = type == Dtype::bf16 && !weights.largest;
                    for (const Dtype gradient : types)
                        if (gradient == Dtype::f32 || may_be_bf16)
                            k.adam(exec,
                                   {operand(master, row), operand(moment, row), operand(moment, row),
                                    operand(gradient, row), weights},
                                   {}, {}, scalars);
                }
                k.descend(exec, operand(master, row), operand(Dtype::f32, row), weights, {}, {}, scalars);
            }
            k.add(exec, operand(master, row), copy);
        }
    for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::f64})
        k.sum(exec, &scalars.loss, operand(type, row));
    k.finish_norm(exec, scalars, 1);
}

// Products of groups of many rows, with sums in float32, which cases do not have, by each kernel.
void run_products_of_experts() {
    const auto gpu = open_gpu(0);
    const OwnedTensor memory(Dtype::u8, {1 << 20}, "operands", gpu->memory());
    const auto operand = [&](Dtype type, const Shape& shape) {
        return Tensor(memory.view.data, type, shape);
    };
    std::vector<KernelCase> cases = test_cases();
    std::erase_if(cases, [](const KernelCase& c) { return !c.name.starts_with("grouped_gemm"); });
    for (const ExpertsKernel kernel : experts_kernels) {
        Exec exec(*gpu);
        set_product_options(exec, {.experts = kernel});
        for (const bool transposed : {false, true})
            cuda_kernels().grouped_gemm(exec, operand(Dtype::f32, {1024, 128}),
                                        operand(Dtype::bf16, {1024, 128}),
                                        {operand(Dtype::bf16, {256, 128}), transposed},
                                        {.begins = operand(Dtype::i32, {2}),
                                         .counts = operand(Dtype::i32, {2}),
                                         .assignments = 1024});
        std::vector<KernelCase> by_kernel;
        for (const KernelCase& c : cases) by_kernel.push_back(with_options(c, {.experts = kernel}));
        run_cases(by_kernel);
    }
}

}  // namespace

int main() {
    log::use_stderr();
    using Largest = std::pair<unsigned, size_t>;
    std::map<const void*, Largest> launches;
    emulation::on_launch = [&](const emulation::Launch& launch) {
        Largest& largest = launches[launch.kernel];
        largest = std::max(largest, {launch.threads, launch.shared_bytes});
        return false;
    };
    run_cases(test_cases());
    run_cases(wide_cases());
    for (const LargestCase& c : largest_cases()) run_cases({c.with_largest});
    for (const RoundedCase& c : rounded_cases(false)) run_cases({c.fused});
    run_other_types();
    run_sums_of_blocks();
    run_products_of_experts();
    // products of 8-bit floats and gradients of attention use other kernels on other GPUs
    std::vector<KernelCase> products = quantization_cases();
    std::erase_if(products, [](const KernelCase& c) { return !c.name.starts_with("scaled_"); });
    const std::vector<KernelCase> of_experts = expert_cases();
    std::ranges::copy_if(of_experts, std::back_inserter(products),
                         [](const KernelCase& c) { return c.name.starts_with("scaled_grouped"); });
    std::vector<KernelCase> gradients = test_cases();
    std::erase_if(gradients, [](const KernelCase& c) { return !c.name.starts_with("attention_backward"); });
    emulation::architecture = 80;
    run_cases(gradients);
    for (const int architecture : {80, 89, 100}) {
        emulation::architecture = architecture;
        run_cases(products);
    }
    for (const auto& [kernel, largest] : launches)
        std::printf("%tx %u %zu\n", static_cast<const char*>(kernel) - &__executable_start, largest.first,
                    largest.second);
    return 0;
}
