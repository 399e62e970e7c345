// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/family.hpp"

namespace coeus {

DecoderConfig with_sizes(DecoderConfig model, const FlavorSizes& sizes) {
    model.flavor = sizes.flavor;
    model.dim = sizes.dim;
    model.layers = sizes.layers;
    model.vocab = sizes.vocab;
    model.feed_forward.hidden = sizes.hidden;
    GroupedAttentionConfig& attention = model.grouped();
    attention.heads = sizes.heads;
    attention.kv_heads = sizes.kv_heads;
    attention.head_dim = sizes.head_dim;
    return model;
}

}  // namespace coeus
