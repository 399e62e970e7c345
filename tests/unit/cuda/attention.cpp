// SPDX-License-Identifier: Apache-2.0
// The choice of attention on tensor cores; its results are tested in tests/gpu.
#include "../../../src/kernels/cuda/attention/attention_mma.hpp"
#include "support/catch.hpp"

using namespace coeus;

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
