// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/block_inputs.hpp"

#include <array>

namespace coeus {

namespace {

// Where everything is that a micro-batch keeps.
class InputsInFrame : public BlockInputs {
public:
    Kept keep(Ctx& c, const void* owner, Flow in) const override {
        Flow room = in;  // a block leaves types and shapes as they are
        for (int i = 0; i < in.count; ++i) {
            Tensor& tensor = room.tensors[size_t(i)];
            tensor = c.frame.keep(tensor.dtype, tensor.shape);
            c.frame.push(owner, in.tensors[size_t(i)]);
        }
        return {room, {}};
    }
    Flow recall(Ctx& c, const void* owner, int count) const override {
        Flow in;
        in.count = count;
        for (int i = count; i-- > 0;) in.tensors[size_t(i)] = c.frame.pop(owner);
        return in;
    }
};

}  // namespace

const BlockInputs& inputs_in_frame() {
    static const InputsInFrame inputs;
    return inputs;
}

// What is on its way between the device and the host.
class OffloadedInputs::Transfers {
public:
    Transfers(Tensor flow, const Exec& computation)
        : memory_(bytes(flow), "places of offloaded activations", computation.device->memory()),
          stream_(Stream::Mode::eager, computation) {
        places_[0].data = memory_.data();
        places_[1].data = memory_.data() + padded_bytes(flow.bytes());
    }

    Pending copy(void* to, const void* from, int64_t bytes) {
        const auto give = [&] { stream_.exec().queue->copy(to, from, bytes); };
        return stream_.run([&give] { give(); });  // eager: at once
    }

    // Begins to bring it to the place that is not in use.
    void fetch(Tensor from) {
        Place& place = places_[1 - in_use_];
        if (place.holds == from.data) return;
        place.arrived = copy(place.data, from.data, from.bytes());
        place.holds = from.data;
    }

    // Fetched, and in use from now on: the other place is free.
    Tensor take(Tensor from) {
        fetch(from);
        in_use_ = 1 - in_use_;
        Place& place = places_[in_use_];
        place.arrived.join();
        place.holds = nullptr;
        return Tensor(place.data, from.dtype, from.shape);
    }

private:
    struct Place {
        std::byte* data = nullptr;
        const void* holds = nullptr;  // address on the host
        Pending arrived;
    };
    Buffer memory_;
    Stream stream_;
    std::array<Place, 2> places_;  // end before the stream
    size_t in_use_ = 0;
};

OffloadedInputs::OffloadedInputs() = default;
OffloadedInputs::OffloadedInputs(Tensor flow, const Exec& computation)
    : transfers_(std::make_unique<Transfers>(flow, computation)) {}
OffloadedInputs::~OffloadedInputs() = default;

BlockInputs::Kept OffloadedInputs::keep(Ctx& c, const void* owner, Flow in) const {
    require(in.count == 1, "what flows between offloaded blocks is one tensor");
    const Tensor from = in.hidden(), to = c.frame.keep_on_host(owner, from.dtype, from.shape);
    return {in, transfers_ ? transfers_->copy(to.data, from.data, from.bytes()) : Pending()};
}

Flow OffloadedInputs::recall(Ctx& c, const void* owner, int /*count*/) const {
    const Tensor from = c.frame.pop_from_host(owner);
    if (!transfers_) return from;
    const Tensor here = transfers_->take(from);
    expect_recall(c);
    return here;
}

void OffloadedInputs::expect_recall(Ctx& c) const {
    const Tensor next = c.frame.last_on_host();
    if (transfers_ && next) transfers_->fetch(next);
}

}  // namespace coeus
