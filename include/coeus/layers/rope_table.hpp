// SPDX-License-Identifier: Apache-2.0
// RopeTable: cos and sin for every position and pair (Su et al. 2021), with Llama 3.1's scaling of the
// frequencies.
#pragma once

#include "coeus/device/device.hpp"

#include <optional>
#include <vector>

namespace coeus {

/// Llama 3.1's scaling, with the wavelength l = 2 pi / f. If l < original/high: f. If l > original/low:
/// f/factor. In between: linear in original/l.
struct RopeScaling {
    double factor = 8, low_frequency = 1, high_frequency = 4, original_positions = 8192;

    bool operator==(const RopeScaling&) const = default;
};

/// f_j = theta^(-2j/head_dim), scaled: head_dim/2 frequencies, in double.
std::vector<double> rope_frequencies(int64_t head_dim, double theta,
                                     const std::optional<RopeScaling>& scaling);

class RopeTable {
public:
    RopeTable(int64_t positions, int64_t head_dim, double theta, const std::optional<RopeScaling>& scaling,
              Dtype dtype);  // on the host
    /// [positions, head_dim]: cos of pair j at 2j, sin at 2j + 1.
    Tensor view() const { return table_; }
    /// Moves the table from the host to a device.
    void move_to(const Device& device);

private:
    OwnedTensor table_;
};

}  // namespace coeus
