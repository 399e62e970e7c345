// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/rope_table.hpp"

#include <cmath>
#include <utility>

namespace coeus {

RopeTable::RopeTable(int64_t positions, int64_t width, double theta, const RopeScaling& scaling, Dtype dtype)
    : RopeTable(
          positions, width,
          [frequencies = rope_frequencies(width, theta, scaling, positions)](int64_t position, int64_t pair) {
              return double(position) * frequencies[size_t(pair)];
          },
          dtype) {
    magnitude_ = rope_magnitude(scaling);
}

RopeTable::RopeTable(int64_t positions, int64_t width, Angle angle, Dtype dtype) : angle_(std::move(angle)) {
    table_.view = Tensor(nullptr, dtype, {positions, width});
}

void RopeTable::allocate(const Device& device) {
    const int64_t positions = table_.view.rows(), width = table_.view.cols();
    table_ = OwnedTensor(table_.view.dtype, table_.view.shape, "RoPE table");
    for (int64_t p = 0; p < positions; ++p) {
        for (int64_t j = 0; j < width / 2; ++j) {
            const double angle = angle_(p, j);
            set_element(table_, p * width + 2 * j, magnitude_ * std::cos(angle));
            set_element(table_, p * width + 2 * j + 1, magnitude_ * std::sin(angle));
        }
    }
    table_ = moved_to(device, std::move(table_));
}

}  // namespace coeus
