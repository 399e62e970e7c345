// SPDX-License-Identifier: Apache-2.0
// The choice of attention on tensor cores; its results are tested in tests/gpu.
#include "../../../src/kernels/cuda/attention/attention_choice.hpp"
#include "../../../src/kernels/cuda/attention/attention_mma.hpp"
#include "coeus/base/log.hpp"
#include "coeus/kernels/own_attention.hpp"
#include "gpu/launches.hpp"
#include "pretended_gpu.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "support/cases.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

/// The kernels that compute the gradients of attention, and what the log says.
struct SeenGradients {
    std::string kernels, said;
};

/// Two backwards of one call. Without `has_kernels`, the program has no code for the GPU, and nothing is
/// computed.
SeenGradients two_backwards(const Device& gpu, OwnAttention which = OwnAttention::usual,
                            int64_t head_dim = 64, bool has_kernels = true) {
    const TemporaryFolder folder;
    log::init({.file = (folder / "log").string(), .quiet = true});
    KernelCase c = attention_case({1, 20, 1, 1, head_dim, 0.1}, false, true);
    c.call = [call = c.call, which](const Kernels& kernels, Exec& exec, const Operands& operands) {
        choose_own_attention(exec, which);
        for (int i = 0; i < 2; ++i) call(kernels, exec, operands);
    };
    emulation::set_kernels_for_gpu(has_kernels);
    emulation::on_launch = [&](const emulation::Launch&) { return has_kernels; };
    Launches launches;
    run_case_on(gpu, c, Dtype::bf16, Dtype::bf16, 1, &launches);
    emulation::on_launch = nullptr;
    emulation::set_kernels_for_gpu(true);
    log::flush();
    log::init({});
    SeenGradients seen = {{}, read_file(folder / "log")};
    for (const char* kernel : {"mma", "wgmma"})
        if (launches.names.contains(std::string("attention_query_gradients_") + kernel) &&
            launches.names.contains(std::string("attention_key_gradients_") + kernel))
            seen.kernels += kernel;
    return seen;
}

}  // namespace

TEST_CASE("tensor cores are chosen for bf16 with suitable head sizes, in rows at multiples of 16 bytes") {
    using cuda::tensor_cores_fit;
    const OwnedTensor memory(Dtype::bf16, {4, 64});
    const Tensor t = memory.view;
    const auto shape = [](int64_t head_dim, double scale = 0.1) {
        return AttentionShape{1, 4, 1, 1, head_dim, scale};
    };
    for (const int64_t head_dim : {8, 64, 80, 128, 136, 192, 256})
        CHECK(tensor_cores_fit(Dtype::bf16, shape(head_dim), {t}));
    for (const int64_t head_dim : {1, 12, 60, 130, 264})
        CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(head_dim), {t}));
    CHECK_FALSE(tensor_cores_fit(Dtype::f32, shape(64), {t}));
    CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(64, -0.1), {t}));
    AttentionShape values = shape(64);
    values.value_dim = 64;
    CHECK(tensor_cores_fit(Dtype::bf16, values, {t}));
    values.value_dim = 32;
    CHECK(tensor_cores_fit(Dtype::bf16, values, {t}));
    for (const int64_t value_dim : {12, 264}) {
        values.value_dim = value_dim;
        CHECK_FALSE(tensor_cores_fit(Dtype::bf16, values, {t}));
    }
    CHECK(tensor_cores_fit(Dtype::bf16, shape(8), {t, t.slice_cols(8, 8)}));
    CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(8), {t, t.slice_cols(4, 8)}));
    const OwnedTensor odd(Dtype::bf16, {4, 60});
    CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(8), {t, odd.view.slice_cols(0, 8)}));
}

TEST_CASE("a head gets the narrowest columns on tensor cores that hold its keys and values") {
    const auto columns = [](int64_t keys, int64_t values) {
        AttentionShape s{1, 4, 1, 1, keys, 0.1};
        s.value_dim = values;
        std::pair<int, int> found;
        cuda::dispatch_width(s, [&]<class Widths>(Widths) { found = {Widths::keys, Widths::values}; });
        return found;
    };
    CHECK(columns(24, 16) == std::pair(32, 32));
    CHECK(columns(40, 72) == std::pair(96, 96));
    CHECK(columns(128, 128) == std::pair(128, 128));
    CHECK(columns(192, 128) == std::pair(192, 128));  // DeepSeek V3
    CHECK(columns(136, 8) == std::pair(192, 128));
    CHECK(columns(192, 136) == std::pair(256, 256));
    CHECK(columns(8, 136) == std::pair(256, 256));
    CHECK(columns(256, 256) == std::pair(256, 256));
}

TEST_CASE("gradients of attention: wgmma is for Hopper, bfloat16, and widths that it knows") {
    const auto fits = [](int64_t keys, int64_t values, int architecture = 90, Dtype type = Dtype::bf16) {
        AttentionShape s{1, 4, 1, 1, keys, 0.1};
        s.value_dim = values;
        return cuda::wgmma_fits({.architecture = architecture}, type, s);
    };
    CHECK(fits(64, 64));
    CHECK(fits(128, 128));
    CHECK(fits(192, 128));
    for (const auto& [keys, values] :
         {std::pair(32, 32), {96, 96}, {192, 192}, {256, 256}, {64, 128}, {128, 64}})
        CHECK_FALSE(fits(keys, values));
    for (const int architecture : {0, 80, 89, 100}) CHECK_FALSE(fits(128, 128, architecture));
    CHECK_FALSE(fits(128, 128, 90, Dtype::f32));
}

TEST_CASE("gradients of attention: mma computes what wgmma cannot, and Hopper warns of it once") {
    const PretendedGpu hopper(90);
    const auto check = [](const SeenGradients& seen, const std::string& kernels, const std::string& warning) {
        CHECK(seen.kernels == kernels);
        CHECK_THAT(seen.said, Catch::Contains(warning));
        CHECK(count_of("warning", seen.said) == (warning.empty() ? 0 : 1));
    };
    check(two_backwards(hopper.get()), "wgmma", "");
    check(two_backwards(hopper.get(), OwnAttention::mma), "mma", "");
    check(two_backwards(hopper.get(), OwnAttention::usual, 32), "mma", "");
    const std::string by_mma = " warning gradients of attention are computed by mma, not by wgmma: ";
    check(two_backwards(hopper.get(), OwnAttention::usual, 64, false), "mma",
          by_mma + "this program does not have the kernel for compute capability 9.0 (");
    const WithoutMaps without;
    check(two_backwards(hopper.get()), "mma", by_mma + "this driver does not describe matrices for TMA\n");
    check(two_backwards(hopper.get(), OwnAttention::mma), "mma", "");
    for (const int architecture : {80, 100})
        check(two_backwards(PretendedGpu(architecture).get()), "mma", "");
}
