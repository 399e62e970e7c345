// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/block_inputs.hpp"

#include <array>

namespace coeus {

namespace {

// Keeps inputs on the frame, like everything else of a micro-batch.
class InputsInFrame : public BlockInputs {
public:
    Kept keep(Ctx& c, const void* owner, Flow in) const override {
        push_flow(c, owner, in);
        return {keep_like(c, in), {}};  // the block's result has the types and shapes of its input
    }
    Flow recall(Ctx& c, const void* owner, int count) const override { return pop_flow(c, owner, count); }
};

Flow flow_of(std::span<const Frame::Kept> all) {
    Flow flow;
    for (const Frame::Kept& kept : all) flow.add(kept.tensor);
    return flow;
}

}  // namespace

const BlockInputs& inputs_in_frame() {
    static const InputsInFrame inputs;
    return inputs;
}

// Copies inputs between the device and the host.
class OffloadedInputs::Transfers {
public:
    Transfers(const Flow& flow, const Exec& computation)
        : memory_(bytes(flow), "buffers of offloaded activations", computation.device->memory()),
          stream_(Stream::Mode::eager, computation) {
        places_[0].data = memory_.data();
        places_[1].data = memory_.data() + flow.bytes();
    }

    Pending leave(const Flow& on_host, const Flow& here) {
        return stream_.run([&] { copy(on_host, here); });  // eager: at once
    }

    // Begins to copy an input to the place that is not in use.
    void fetch(const Flow& from) {
        Place& place = places_[1 - in_use_];
        if (place.holds == from.hidden().data) return;
        place.arrived = stream_.run([&] { copy(from.placed_at(place.data), from); });
        place.holds = from.hidden().data;
    }

    // Waits for an input and puts it in use; the other place is then free.
    Flow take(const Flow& from) {
        fetch(from);
        in_use_ = 1 - in_use_;
        Place& place = places_[in_use_];
        place.arrived.join();
        place.holds = nullptr;
        return from.placed_at(place.data);
    }

private:
    struct Place {
        std::byte* data = nullptr;
        const void* holds = nullptr;  // address of the first tensor on the host; null: nothing
        Pending arrived;
    };
    void copy(const Flow& to, const Flow& from) {
        for (size_t i = 0; i < from.all().size(); ++i)
            stream_.exec().queue->copy(to.all()[i].data, from.all()[i].data, from.all()[i].bytes());
    }

    Buffer memory_;
    Stream stream_;
    std::array<Place, 2> places_;  // must end before the stream
    size_t in_use_ = 0;
};

OffloadedInputs::OffloadedInputs() = default;
OffloadedInputs::OffloadedInputs(const Flow& flow, const Exec& computation)
    : transfers_(std::make_unique<Transfers>(flow, computation)) {}
OffloadedInputs::~OffloadedInputs() = default;

BlockInputs::Kept OffloadedInputs::keep(Ctx& c, const void* owner, Flow in) const {
    Flow on_host;
    for (const Tensor& tensor : in.all())
        on_host.add(c.frame.keep_on_host(owner, tensor.dtype, tensor.shape));
    return {in, transfers_ ? transfers_->leave(on_host, in) : Pending()};
}

Flow OffloadedInputs::recall(Ctx& c, const void* owner, int count) const {
    const Flow from = flow_of(c.frame.last_on_host());
    require(from.count() == count, "a block's input and its gradient have different numbers of tensors");
    for (int i = 0; i < count; ++i) c.frame.pop_from_host(owner);
    if (!transfers_) return from;
    const Flow here = transfers_->take(from);
    expect_recall(c);
    return here;
}

void OffloadedInputs::expect_recall(Ctx& c) const {
    const Flow next = flow_of(c.frame.last_on_host());
    if (transfers_ && next.count() > 0) transfers_->fetch(next);
}

}  // namespace coeus
