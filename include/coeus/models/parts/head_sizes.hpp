// SPDX-License-Identifier: Apache-2.0
// HeadSizes: what all kinds of attention have.
#pragma once

#include <cstdint>

namespace coeus {

struct HeadSizes {
    int64_t heads, kv_heads;  ///< on all tensor-parallel ranks together
    int64_t head_dim;         ///< width of a head of queries and keys
    int64_t value_dim;        ///< width of a head of values and of the output
    int64_t rotated_dim;      ///< columns of a head that RoPE rotates, if the layer has RoPE
    int64_t window;           ///< tokens that a query attends to, with itself; 0: all before it

    /// Columns of all heads' keys, and of all heads' values.
    int64_t key_width() const { return kv_heads * head_dim; }
    int64_t value_width() const { return kv_heads * value_dim; }
    /// Multiplications for a query and a key: of the score, and of the value by the score, in all heads.
    int64_t score_width() const { return heads * (head_dim + value_dim); }
};

/// ConfigError: the heads have no width, because their number does not divide `dim`, the width of the model;
/// or their width is odd.
void require_heads_fit(const HeadSizes& sizes, int64_t dim);

}  // namespace coeus
