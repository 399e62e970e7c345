// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/base/types.hpp"
#include "coeus/device/tensor.hpp"

#include <cstring>
#include <span>
#include <vector>

namespace coeus::test {

/// The elements of a tensor in host memory as doubles, row by row.
std::vector<double> values_of(const Tensor& t);
/// Sets them, rounded to the tensor's type.
void set_values(const Tensor& t, std::span<const double> values);

/// Copies element by element between tensors of equal shape in host memory, also if the types differ.
inline void copy_converting(Tensor to, Tensor from) {
    require(to.count() == from.count() && to.rows() == from.rows(), "copied tensors differ in shape");
    if (to.dtype != from.dtype) return set_values(to, values_of(from));
    const size_t bytes = size_t(to.cols() * size_of(to.dtype));
    for (int64_t r = 0; r < to.rows() && bytes > 0; ++r)
        std::memcpy(to.slice_rows(r, 1).data, from.slice_rows(r, 1).data, bytes);
}

}  // namespace coeus::test
