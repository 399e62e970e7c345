// SPDX-License-Identifier: Apache-2.0
// RopeTable: cos and sin for every position and pair (Su et al. 2021).
#pragma once

#include "coeus/device/device.hpp"
#include "coeus/layers/rope_scaling.hpp"

#include <functional>

namespace coeus {

class RopeTable {
public:
    /// `positions`: of the longest row, whose length the scaling takes. `width`: columns of a head that are
    /// rotated.
    RopeTable(int64_t positions, int64_t width, double theta, const RopeScaling& scaling, Dtype dtype);
    /// The angle by which a pair is rotated at a position.
    using Angle = std::function<double(int64_t position, int64_t pair)>;
    /// Any angles, such as those of rows and columns of a picture. They are computed by allocate().
    RopeTable(int64_t positions, int64_t width, Angle angle, Dtype dtype);
    /// [positions, width]: cos of pair j at 2j, sin at 2j + 1. Before allocate() it has a shape, but no data.
    Tensor view() const { return table_.view; }
    void allocate(const Device& device = host_device());

private:
    Angle angle_;
    double magnitude_ = 1;
    OwnedTensor table_;
};

}  // namespace coeus
