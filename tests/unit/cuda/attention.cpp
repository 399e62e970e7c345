// SPDX-License-Identifier: Apache-2.0
// The choice of attention on tensor cores; its results are tested in tests/gpu.
#include "../../../src/kernels/cuda/attention_mma.hpp"
#include "support/catch.hpp"

using namespace coeus;

TEST_CASE("tensor cores are chosen for bf16 with suitable head sizes, in rows at multiples of 16 bytes") {
    using cuda::tensor_cores_fit;
    const OwnedTensor memory(Dtype::bf16, {4, 64});
    const Tensor t = memory.view;
    const auto shape = [](int64_t head_dim, double scale = 0.1) {
        return AttentionShape{1, 4, 1, 1, head_dim, scale};
    };
    for (const int64_t head_dim : {8, 64, 80, 128})
        CHECK(tensor_cores_fit(Dtype::bf16, shape(head_dim), {t}));
    for (const int64_t head_dim : {1, 12, 60, 136, 256})
        CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(head_dim), {t}));
    CHECK_FALSE(tensor_cores_fit(Dtype::f32, shape(64), {t}));
    CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(64, -0.1), {t}));
    AttentionShape values = shape(64);
    values.value_dim = 64;
    CHECK(tensor_cores_fit(Dtype::bf16, values, {t}));
    values.value_dim = 32;
    CHECK_FALSE(tensor_cores_fit(Dtype::bf16, values, {t}));
    CHECK(tensor_cores_fit(Dtype::bf16, shape(8), {t, t.slice_cols(8, 8)}));
    CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(8), {t, t.slice_cols(4, 8)}));
    const OwnedTensor odd(Dtype::bf16, {4, 60});
    CHECK_FALSE(tensor_cores_fit(Dtype::bf16, shape(8), {t, odd.view.slice_cols(0, 8)}));
}
