// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/decoder_part.hpp"

#include "coeus/base/text.hpp"

namespace coeus {

namespace {

// tok_embeddings, the layers, output; and for each depth of multi-token prediction an embedding, a layer and
// an output.
size_t all_segments(const DecoderConfig& config) {
    return size_t(2 + config.layers + 3 * config.mtp.layers);
}

}  // namespace

ModelPart DecoderPart::segments(const DecoderConfig& config) const {
    return {.first = embedding ? 0 : size_t(first_layer) + 1,
            .last = head ? all_segments(config) : size_t(last_layer) + 1};
}

DecoderPart DecoderPart::of(const DecoderConfig& config, const ModelPart& part) {
    const bool head = part.last == all_segments(config);
    return {.embedding = part.first == 0,
            .first_layer = part.first == 0 ? 0 : int64_t(part.first) - 1,
            .last_layer = head ? config.layers : int64_t(part.last) - 1,
            .head = head};
}

std::string DecoderPart::text() const {
    std::vector<std::string> modules;
    if (embedding) modules.emplace_back("tok_embeddings");
    if (layers() == 1) modules.push_back(fmt::format("layer {}", first_layer));
    if (layers() > 1) modules.push_back(fmt::format("layers {} to {}", first_layer, last_layer - 1));
    if (head) modules.emplace_back("norm, output");
    return join(modules, ", ");
}

}  // namespace coeus
