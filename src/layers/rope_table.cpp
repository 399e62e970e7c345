// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/rope_table.hpp"

#include <cmath>
#include <numbers>
#include <utility>

namespace coeus {

std::vector<double> rope_frequencies(int64_t head_dim, double theta,
                                     const std::optional<RopeScaling>& scaling) {
    std::vector<double> frequencies;
    for (int64_t j = 0; j < head_dim / 2; ++j) {
        double f = std::pow(theta, -2.0 * double(j) / double(head_dim));
        if (scaling) {
            const double turns =
                scaling->original_positions * f / (2 * std::numbers::pi);  // original / wavelength
            if (turns < scaling->low_frequency) {
                f /= scaling->factor;
            } else if (turns <= scaling->high_frequency) {
                const double s =
                    (turns - scaling->low_frequency) / (scaling->high_frequency - scaling->low_frequency);
                f = (1 - s) * f / scaling->factor + s * f;
            }
        }
        frequencies.push_back(f);
    }
    return frequencies;
}

RopeTable::RopeTable(int64_t positions, int64_t head_dim, double theta,
                     const std::optional<RopeScaling>& scaling, Dtype dtype)
    : table_(dtype, {positions, head_dim}, "RoPE table") {
    const std::vector<double> frequencies = rope_frequencies(head_dim, theta, scaling);
    for (int64_t p = 0; p < positions; ++p) {
        for (int64_t j = 0; j < head_dim / 2; ++j) {
            const double angle = double(p) * frequencies[size_t(j)];
            set_element(table_, p * head_dim + 2 * j, std::cos(angle));
            set_element(table_, p * head_dim + 2 * j + 1, std::sin(angle));
        }
    }
}

void RopeTable::move_to(const Device& device) {
    if (device.is_host()) return;
    OwnedTensor there(table_.view.dtype, table_.view.shape, "RoPE table", device.memory());
    device.copy(there.view.data, table_.view.data, there.view.bytes());
    table_ = std::move(there);
}

}  // namespace coeus
