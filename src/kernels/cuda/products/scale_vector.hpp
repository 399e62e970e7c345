// SPDX-License-Identifier: Apache-2.0
// The scales of the rows or columns of a product, as kernels read them.
#pragma once

#include "scaled_product.hpp"

namespace coeus::cuda {

/// Scales of rows or columns: one (step 0), or each its own; null: 1.
struct ScaleVector {
    const float* scales;
    int step;
    __device__ float operator[](int64_t i) const { return scales ? scales[i * step] : 1; }
};

inline const float* numbers_of(const Tensor& t) {
    return t.groups == ScaleGroups::none ? nullptr : static_cast<const float*>(t.scale);
}
inline ScaleVector scale_vector(const Tensor& t) {
    return {numbers_of(t), has_one_scale(t) ? 0 : 1};
}

}  // namespace coeus::cuda
