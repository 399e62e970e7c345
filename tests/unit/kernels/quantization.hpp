// SPDX-License-Identifier: Apache-2.0
// What the tests of kernels for 8-bit floats have in common.
#pragma once

#include "coeus/base/random.hpp"
#include "support/quantized.hpp"

#include <cmath>
#include <cstring>
#include <string>

namespace coeus::test {

/// A matrix with three more columns in memory, which the kernels must not touch.
struct Wide {
    OwnedTensor memory;
    Tensor view;

    Wide(Dtype type, int64_t rows, int64_t cols, int64_t beside = 3)
        : memory(type, {rows, cols + beside}), view(memory.view.slice_cols(0, cols)) {}
    operator Tensor() const { return view; }
};

/// Fills a tensor with numbers of very different sizes; one in eight is zero.
inline void draw(const Tensor& t, uint64_t seed) {
    const RandomStream random(seed, "quantization");
    for (int64_t i = 0; i < t.count(); ++i) {
        const double size = std::exp(4 * normal_quantile(random.uniform(uint64_t(2 * i))));
        const double sign = random.u64(uint64_t(2 * i + 1)) % 2 ? 1 : -1;
        set_element(t, i, random.u64(uint64_t(2 * i + 1)) / 2 % 8 ? sign * size : 0);
    }
}

inline bool same_bytes(const OwnedTensor& a, const OwnedTensor& b) {
    return a.buffer.bytes() == b.buffer.bytes() &&
           std::memcmp(a.buffer.data(), b.buffer.data(), size_t(a.view.bytes())) == 0;
}

inline std::string text_of(const Form& form) {
    return fmt::format("{}, groups {}, rule {}", name_of(form.type), int(form.groups), int(form.rule));
}

/// Rows of three groups, of which one is empty: 40 rows, none, and 32.
struct ThreeGroups {
    OwnedTensor begins{Dtype::i32, {3}}, counts{Dtype::i32, {3}};
    Groups groups;
    static constexpr int64_t rows = 130, used = 96;

    ThreeGroups() {
        const int32_t first[] = {0, 64, 64}, number[] = {40, 0, 32};
        std::memcpy(begins.view.data, first, sizeof first);
        std::memcpy(counts.view.data, number, sizeof number);
        groups = {begins, counts, 72};
    }
    static int64_t group_of(int64_t row) { return row < 64 ? 0 : 2; }
    static bool is_padding(int64_t row) { return row >= 40 && row < 64; }
};

}  // namespace coeus::test
