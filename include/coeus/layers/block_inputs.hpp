// SPDX-License-Identifier: Apache-2.0
// BlockInputs: keeps the inputs of recomputed blocks (recompute_block.hpp) between forward and backward. Such
// blocks keep nothing else: these inputs are the residual stream.
#pragma once

#include "coeus/device/stream.hpp"
#include "coeus/layers/context.hpp"

#include <memory>

namespace coeus {

class BlockInputs {
public:
    virtual ~BlockInputs() = default;

    struct Kept {
        Flow room;     ///< memory for the block's result
        Pending left;  ///< join it before writing the result there: the input may still be copied
    };
    /// Called before the block's forward, which may still read its input.
    virtual Kept keep(Ctx& c, const void* owner, Flow in) const = 0;
    /// Called in the backward, for the last block first. Returns the input, a flow of `count` tensors that is
    /// valid until the next call.
    virtual Flow recall(Ctx& c, const void* owner, int count) const = 0;
    /// Announces that the frame's backward begins soon.
    virtual void expect_recall(Ctx& /*c*/) const {}
};

/// Keeps the inputs in the frames' pinned host memory. An input is copied out during its block's forward, and
/// the result takes its place. The backward uses two places on the device: one has the input in use, while
/// the next input to be used is copied to the other.
class OffloadedInputs : public BlockInputs {
public:
    /// For planning runs: nothing is copied.
    OffloadedInputs();
    /// For flows like this one, next to a computation, which must outlive it. Allocates the two places.
    OffloadedInputs(const Flow& flow, const Exec& computation);
    ~OffloadedInputs() override;

    /// Bytes of device memory.
    static int64_t bytes(const Flow& flow) { return 2 * flow.bytes(); }

    Kept keep(Ctx& c, const void* owner, Flow in) const override;
    Flow recall(Ctx& c, const void* owner, int count) const override;
    void expect_recall(Ctx& c) const override;

private:
    class Transfers;
    std::unique_ptr<Transfers> transfers_;
};

}  // namespace coeus
