// SPDX-License-Identifier: Apache-2.0
// DecoderPart: the part of a decoder in one pipeline stage (stage_split.hpp says which). A decoder's modules
// are, in order: tok_embeddings, layers.0, layers.1, ..., norm, output, mtp_layers.0, ... Those from norm on
// are always in the same stage.
#pragma once

#include "coeus/models/decoder_config.hpp"
#include "coeus/models/model.hpp"

#include <string>
#include <vector>

namespace coeus {

struct DecoderPart {
    bool embedding = false;
    int64_t first_layer = 0, last_layer = 0;  ///< [first_layer, last_layer)
    bool head = false;                        ///< norm, output, and multi-token prediction

    static DecoderPart whole(const DecoderConfig& config) { return {true, 0, config.layers, true}; }
    int64_t layers() const { return last_layer - first_layer; }
    /// The same as segments of the model (Model::segments()), and back.
    ModelPart segments(const DecoderConfig& config) const;
    static DecoderPart of(const DecoderConfig& config, const ModelPart& part);
    /// "tok_embeddings, layers 0 to 3"
    std::string text() const;
    bool operator==(const DecoderPart&) const = default;
};

}  // namespace coeus
