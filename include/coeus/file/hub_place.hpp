// SPDX-License-Identifier: Apache-2.0
// HubPlace: the place of a parameter's elements in the tensors of a Hugging Face folder. Models define the
// places; readers and writers of folders use them. Rows of rotated projections may have another order in the
// folder:
//   half-split (Hugging Face)   row j of a head forms a pair with row j + d/2
//   interleaved (torchtitan)    row 2j forms a pair with row 2j + 1
#pragma once

#include "coeus/device/tensor.hpp"

#include <string>

namespace coeus {

/// Rows [first_row, first_row + rows) of a parameter: element (r, c), with r counted from first_row, is
/// element offset + r row_stride + c col_stride of the tensor.
struct HubPlace {
    std::string name;  ///< "model.layers.0.self_attn.q_proj.weight"
    Shape shape;       ///< of the whole tensor in the folder
    int64_t first_row = 0, rows = 0;
    int64_t offset = 0, row_stride = 0, col_stride = 1;
    /// > 0: the rows are this many heads, in half-split order in the folder and interleaved in Coeus.
    int64_t rotated_heads = 0;
    int64_t rotated_rows = 0;  ///< the first rows of each of these heads, which have the other order; 0: all
    /// The published layout has the tensor in float32 even if the others have fewer bits.
    bool keeps_f32 = false;

    /// The place of a parameter that is a whole tensor, element for element.
    static HubPlace whole(std::string name, const Shape& shape, int64_t rotated_heads = 0) {
        return {.name = std::move(name),
                .shape = shape,
                .rows = shape.rows(),
                .row_stride = shape.cols(),
                .rotated_heads = rotated_heads};
    }
    /// The index, in the flattened tensor, of element (row, col) of the parameter.
    int64_t index(int64_t row, int64_t col) const;
};

/// A tensor of a folder that is left out, because the model has one tensor for it and another one.
struct HubCopy {
    std::string of;         ///< the other one
    const char* otherwise;  ///< what a user can do if the two differ
};

/// The row in half-split order that corresponds to `row` in interleaved order. Rows are counted over all
/// heads. `rotated`: the first rows of each head, which RoPE rotates; the others keep their places.
constexpr int64_t half_split_row(int64_t row, int64_t head_dim, int64_t rotated) {
    const int64_t r = row % head_dim;
    return r < rotated ? row - r + (r % 2) * (rotated / 2) + r / 2 : row;
}
constexpr int64_t half_split_row(int64_t row, int64_t head_dim) {
    return half_split_row(row, head_dim, head_dim);
}

inline int64_t HubPlace::index(int64_t row, int64_t col) const {
    int64_t r = row - first_row;
    if (rotated_heads > 0) {
        const int64_t head_dim = rows / rotated_heads;
        r = half_split_row(r, head_dim, rotated_rows > 0 ? rotated_rows : head_dim);
    }
    return offset + r * row_stride + col * col_stride;
}

}  // namespace coeus
