// SPDX-License-Identifier: Apache-2.0
// The configuration of one layer of a decoder. It is the same on all ranks, and all that a block is built
// from.
#pragma once

#include "coeus/models/parts/feed_forward.hpp"
#include "coeus/models/parts/grouped_attention.hpp"
#include "coeus/models/parts/head_sizes.hpp"
#include "coeus/models/parts/latent_attention.hpp"
#include "coeus/models/parts/moe.hpp"

#include <variant>

namespace coeus {

/// The kinds of attention. Each is a file of parts/.
using AttentionConfig = std::variant<GroupedAttentionConfig, LatentAttentionConfig>;
/// The kinds of the second part of a layer.
using FeedForwardKind = std::variant<FeedForwardConfig, MoeConfig>;

/// What every kind of attention has.
inline HeadSizes head_sizes_of(const AttentionConfig& attention) {
    return std::visit([](const auto& kind) { return kind.sizes(); }, attention);
}

struct LayerConfig {
    AttentionConfig attention;
    FeedForwardKind feed_forward;

    HeadSizes head_sizes() const { return head_sizes_of(attention); }
    bool is_latent() const { return std::holds_alternative<LatentAttentionConfig>(attention); }
    /// True if it has no experts.
    bool is_dense() const { return std::holds_alternative<FeedForwardConfig>(feed_forward); }
    /// The parts, which must be of these kinds: std::bad_variant_access.
    const GroupedAttentionConfig& grouped() const { return std::get<GroupedAttentionConfig>(attention); }
    const FeedForwardConfig& dense() const { return std::get<FeedForwardConfig>(feed_forward); }
    const MoeConfig& moe() const { return std::get<MoeConfig>(feed_forward); }
    bool operator==(const LayerConfig&) const = default;
};

}  // namespace coeus
