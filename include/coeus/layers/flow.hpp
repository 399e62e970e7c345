// SPDX-License-Identifier: Apache-2.0
// Flow: the tensors that a block passes to the next one, and that a pipeline stage sends.
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/device/memory.hpp"
#include "coeus/device/tensor.hpp"

#include <array>
#include <initializer_list>
#include <span>

namespace coeus {

/// Up to four tensors.
struct Flow {
    static constexpr int most = 4;

    Flow() = default;
    Flow(Tensor hidden)  // NOLINT: implicit; a decoder has just the hidden state
        : Flow{{hidden}} {}
    /// LogicError if there are more than `most`.
    explicit Flow(std::initializer_list<Tensor> tensors) {
        for (const Tensor& tensor : tensors) add(tensor);
    }
    void add(Tensor tensor) {
        require(count_ < most, "more flows between blocks than Flow::most");
        tensors_[size_t(count_++)] = tensor;
    }

    int count() const { return count_; }
    std::span<Tensor> all() { return {tensors_.data(), size_t(count_)}; }
    std::span<const Tensor> all() const { return {tensors_.data(), size_t(count_)}; }
    /// The hidden state of a decoder, [T, D].
    Tensor hidden() const { return tensors_[0]; }
    /// Bytes of all tensors, each padded to the alignment of memory.
    int64_t bytes() const {
        int64_t sum = 0;
        for (const Tensor& tensor : all()) sum += padded_bytes(tensor.bytes());
        return sum;
    }
    /// Tensors with the same types and shapes, one after the other from address `at` on; they take bytes() in
    /// all.
    Flow placed_at(std::byte* at) const {
        Flow placed;
        for (const Tensor& tensor : all()) {
            placed.add(Tensor(at, tensor.dtype, tensor.shape));
            at += padded_bytes(tensor.bytes());
        }
        return placed;
    }

private:
    std::array<Tensor, most> tensors_;
    int count_ = 0;
};

struct Ctx;
/// to = from, converted, tensor by tensor. The flows must have equal shapes.
void cast_flow(Ctx& c, const Flow& to, const Flow& from);
/// to += from, likewise.
void add_flow(Ctx& c, const Flow& to, const Flow& from);
/// Allocates a flow with the same types and shapes on the frame.
Flow keep_like(Ctx& c, const Flow& like);
/// Pushes the tensors to the frame. pop_flow() returns `count` of them in the same order.
void push_flow(Ctx& c, const void* owner, const Flow& flow);
Flow pop_flow(Ctx& c, const void* owner, int count);

}  // namespace coeus
