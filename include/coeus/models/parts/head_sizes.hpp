// SPDX-License-Identifier: Apache-2.0
// HeadSizes: what all kinds of attention have.
#pragma once

#include "coeus/models/config_field.hpp"

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

/// The fields that all kinds of attention have.
namespace head_field {
inline constexpr ConfigField heads = ConfigField::size("n_heads", "num_attention_heads");
inline constexpr ConfigField kv_heads = ConfigField::size("n_kv_heads", "num_key_value_heads");
// 0 if n_heads does not divide dim, which require_heads_fit() reports
inline constexpr ConfigField head_dim = {
    .name = "head_dim", .hub = "head_dim", .is_required = true, .least = 0};
inline constexpr ConfigField value_dim = {.name = "v_head_dim", .is_later = true, .least = 0};
inline constexpr ConfigField window = {
    .name = "sliding_window", .kind = FieldKind::constant, .is_later = true, .least = 0};
}  // namespace head_field

/// ConfigError: the heads have no width, because their number does not divide `dim`, the width of the model;
/// or their width is odd.
void require_heads_fit(const HeadSizes& sizes, int64_t dim);

}  // namespace coeus
