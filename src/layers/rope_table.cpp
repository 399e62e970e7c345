// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/rope_table.hpp"

#include <cmath>
#include <utility>

namespace coeus {

RopeTable::RopeTable(int64_t positions, int64_t width, double theta, const RopeScaling& scaling, Dtype dtype)
    : frequencies_(rope_frequencies(width, theta, scaling, positions)), magnitude_(rope_magnitude(scaling)) {
    table_.view = Tensor(nullptr, dtype, {positions, width});
}

void RopeTable::allocate(const Device& device) {
    const int64_t positions = table_.view.rows(), width = table_.view.cols();
    table_ = OwnedTensor(table_.view.dtype, table_.view.shape, "RoPE table");
    for (int64_t p = 0; p < positions; ++p) {
        for (int64_t j = 0; j < width / 2; ++j) {
            const double angle = double(p) * frequencies_[size_t(j)];
            set_element(table_, p * width + 2 * j, magnitude_ * std::cos(angle));
            set_element(table_, p * width + 2 * j + 1, magnitude_ * std::sin(angle));
        }
    }
    table_ = moved_to(device, std::move(table_));
}

}  // namespace coeus
