// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/staged_tensor.hpp"

namespace coeus {

StagedTensor::StagedTensor(const Device& device, Dtype dtype, const Shape& shape, const std::string& what,
                           int64_t places)
    : shape_(shape), host_(dtype, {places * shape.count()}, what, device.staging()) {
    if (!device.is_host()) there_ = OwnedTensor(dtype, shape, what, device.memory());
}

Tensor StagedTensor::host(int64_t place) const {
    return host_.view.slice_rows(place * count(), count()).reshape(shape_);
}

Tensor StagedTensor::brought(Exec& exec, int64_t rows, int64_t place) const {
    const Tensor from = host(place).slice_rows(0, rows);
    if (!there_.view) return from;
    const Tensor to = there_.view.slice_rows(0, rows);
    exec.queue->copy(to.data, from.data, from.bytes());
    return to;
}

}  // namespace coeus
