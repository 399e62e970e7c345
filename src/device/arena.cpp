// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/arena.hpp"

#include <algorithm>
#include <cstring>

namespace coeus {

namespace {
// outside the addresses that the kernel maps for a process of this size
constexpr uintptr_t planning_base = uintptr_t(1) << 44;
}  // namespace

Arena::Arena(int64_t bytes, const std::string& what, const Memory& memory)
    : buffer_(bytes, what, memory), planning_(false) {}

Tensor Arena::alloc(Dtype dtype, const Shape& shape) {
    const int64_t bytes = padded_bytes(shape.count() * size_of(dtype));
    if (!planning_ && used_ + bytes > buffer_.bytes())
        throw LogicError(fmt::format("arena '{}' of {} bytes is too small: {} in use, {} more wanted",
                                     buffer_.what(), buffer_.bytes(), used_, bytes));
    void* data =
        planning_ ? reinterpret_cast<void*>(planning_base + uintptr_t(used_)) : buffer_.data() + used_;
    const Tensor tensor(data, dtype, shape);
    if (observer_) observer_->allocated(*this, used_, tensor);
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return tensor;
}

Tensor Arena::alloc(Dtype dtype, const Shape& shape, ScaleGroups groups, int64_t matrices) {
    Tensor tensor = alloc(dtype, shape);
    tensor.groups = groups;
    if (groups != ScaleGroups::none)
        tensor.scale = alloc(scale_type(groups), scale_shape(groups, shape, matrices)).data;
    return tensor;
}

void Arena::touch(int64_t bytes) {
    peak_ = std::max(peak_, used_ + padded_bytes(bytes));
}

void Arena::rewind(int64_t mark) {
#ifdef COEUS_DEBUG
    // a queue may still write to pinned memory, so only ordinary host memory is filled
    if (!planning_ && mark < used_ && &buffer_.memory() == &host_memory())
        std::memset(buffer_.data() + mark, 0xff, size_t(used_ - mark));
#endif
    if (observer_) observer_->rewound(*this, mark);
    used_ = mark;
}

}  // namespace coeus
