// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/staged_ids.hpp"

namespace coeus {

StagedIds::StagedIds(const Device& device, int64_t count, const std::string& what, int64_t places)
    : host_(Dtype::i32, {places * count}, what, device.staging()), count_(count) {
    if (!device.is_host()) there_ = OwnedTensor(Dtype::i32, {count}, what, device.memory());
}

Tensor StagedIds::brought(Exec& exec, int64_t count, int64_t place) const {
    const Tensor from = host_.view.slice_rows(place * count_, count);
    if (!there_.view) return from;
    const Tensor to = there_.view.slice_rows(0, count);
    exec.queue->copy(to.data, from.data, from.bytes());
    return to;
}

}  // namespace coeus
