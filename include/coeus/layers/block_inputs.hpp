// SPDX-License-Identifier: Apache-2.0
// BlockInputs: where the input of a block that is computed again (recompute_block.hpp) is between its forward
// and its backward. That is all such blocks keep: the residual stream.
#pragma once

#include "coeus/device/stream.hpp"
#include "coeus/layers/context.hpp"

#include <memory>

namespace coeus {

class BlockInputs {
public:
    virtual ~BlockInputs() = default;

    struct Kept {
        Flow room;     ///< where the block's result goes
        Pending left;  ///< to be joined before it is written there: the input may be leaving that place
    };
    /// Before the block's forward, which may read its input all the same.
    virtual Kept keep(Ctx& c, const void* owner, Flow in) const = 0;
    /// In the backward, the last first: the flow of `count` tensors, valid until the next call.
    virtual Flow recall(Ctx& c, const void* owner, int count) const = 0;
    /// The frame's backward is near.
    virtual void expect_recall(Ctx& /*c*/) const {}
};

/// In pinned host memory, of the frames. An input leaves beside its block's forward, and the result takes its
/// place; in the backward one is in use, in one of two places, while the one before comes to the other.
class OffloadedInputs : public BlockInputs {
public:
    /// For planning: nothing is copied.
    OffloadedInputs();
    /// Of flows like this one, beside a computation, which outlives it; takes the two places.
    OffloadedInputs(const Flow& flow, const Exec& computation);
    ~OffloadedInputs() override;

    /// Of the device's memory.
    static int64_t bytes(const Flow& flow) { return 2 * flow.bytes(); }

    Kept keep(Ctx& c, const void* owner, Flow in) const override;
    Flow recall(Ctx& c, const void* owner, int count) const override;
    void expect_recall(Ctx& c) const override;

private:
    class Transfers;
    std::unique_ptr<Transfers> transfers_;
};

}  // namespace coeus
