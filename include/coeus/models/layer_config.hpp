// SPDX-License-Identifier: Apache-2.0
// The configuration of one layer of a decoder. It is the same on all ranks, and all that a block is built
// from.
#pragma once

#include <cstdint>

namespace coeus {

struct AttentionConfig {
    int64_t heads = 0, kv_heads = 0;  ///< on all tensor-parallel ranks together
    int64_t head_dim = 0;             ///< width of a head of queries and keys
    int64_t value_dim = 0;            ///< width of a head of values and of the output; 0: head_dim

    int64_t value_head_dim() const { return value_dim ? value_dim : head_dim; }
    /// Columns of all heads' keys, and of all heads' values.
    int64_t key_width() const { return kv_heads * head_dim; }
    int64_t value_width() const { return kv_heads * value_head_dim(); }
    bool operator==(const AttentionConfig&) const = default;
};

struct FeedForwardConfig {
    int64_t hidden = 0;  ///< width between the matrices

    bool operator==(const FeedForwardConfig&) const = default;
};

struct LayerConfig {
    AttentionConfig attention;
    FeedForwardConfig feed_forward;

    bool operator==(const LayerConfig&) const = default;
};

}  // namespace coeus
