// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/model.hpp"

namespace coeus {

std::vector<size_t> Model::layers_here() const {
    std::vector<size_t> here;
    size_t layer = 0;
    for (const Segment& segment : segments_) {
        if (segment.is_layer && segment.block) here.push_back(layer);
        if (segment.is_layer) ++layer;
    }
    return here;
}

void Model::allocate(bool with_optimizer, const Device& device) {
    parameters_.allocate(with_optimizer, device);
    move_to(device);
}

}  // namespace coeus
