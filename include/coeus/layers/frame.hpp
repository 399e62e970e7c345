// SPDX-License-Identifier: Apache-2.0
// Frame: what one micro-batch keeps between its forward and its backward: an arena and a stack of tensors,
// and the same in host memory for what is offloaded (block_inputs.hpp).
#pragma once

#include "coeus/device/arena.hpp"
#include "coeus/state/storage.hpp"

#include <span>
#include <vector>

namespace coeus {

struct Ctx;

/// dW += dy^T x, asked for by a linear layer.
struct WeightGradient {
    const Storage* storage;
    Tensor x;                     ///< [T, I], or this rank's rows of it; kept in the frame
    Tensor dy;                    ///< [T, O]
    bool x_is_scattered = false;  ///< the rows of x are to be gathered from the tensor-parallel ranks
    bool x_is_lent = false;       ///< x was computed again, and ends with the layer's backward
    bool dy_is_lent = false;      ///< dy ends with the layer's backward, or is overwritten after it
};

class Frame {
public:
    /// Measures only (the planning run).
    Frame() = default;
    /// `bytes`, `entries` and `owed` (weight gradients between I and W) as the planning run measured them, so
    /// that nothing is allocated later.
    Frame(int64_t bytes, size_t entries, size_t owed = 0, const Memory& memory = host_memory(),
          int64_t host_bytes = 0, const Memory& host = host_memory());

    /// Memory that lives until the frame is rewound: results and whatever the backward needs.
    Tensor keep(Dtype dtype, const Shape& shape) { return memory_.alloc(dtype, shape); }
    /// `owner` is the layer; backward pops exactly what forward pushed, in reverse, which debug builds check.
    void push(const void* owner, Tensor tensor);
    Tensor pop(const void* owner);
    /// Memory on the host, and its own stack.
    Tensor keep_on_host(const void* owner, Dtype dtype, const Shape& shape);
    Tensor pop_from_host(const void* owner);
    /// A tensor of a stack, and the layer that pushed it.
    struct Kept {
        const void* owner;
        Tensor tensor;
    };
    /// What the layer that pushed last has on the host, in the order of its pushes; empty: nothing is there.
    std::span<const Kept> last_on_host() const;

    /// The one door of weight gradients: run now; owed while a schedule computes the gradient of the input
    /// alone; or dropped where the parameter is frozen.
    void later(Ctx& c, const WeightGradient& gradient);
    /// While it lives, weight gradients are owed (I of a split backward). What they need stays in the frame
    /// until it is rewound.
    class [[nodiscard]] Owing {
    public:
        explicit Owing(Frame& frame) : frame_(frame) { frame_.owing_ = true; }
        ~Owing() { frame_.owing_ = false; }
        Owing(const Owing&) = delete;
        Owing& operator=(const Owing&) = delete;

    private:
        Frame& frame_;
    };
    bool is_owing() const { return owing_; }
    /// What is owed, in the order of the backward; pay() adds it all to the gradients of one unit (W).
    const std::vector<WeightGradient>& owed() const { return owed_; }
    void pay(Ctx& c, size_t unit);

    struct Mark {
        int64_t bytes = 0;
        size_t entries = 0;
        int64_t host_bytes = 0;
        size_t host_entries = 0;
    };
    Mark mark() const { return {memory_.mark(), kept_.size(), host_memory_.mark(), on_host_.size()}; }
    void rewind(const Mark& mark);

    const Arena& memory() const { return memory_; }
    void observe(ArenaObserver* observer) { memory_.observe(observer); }
    int64_t peak_bytes() const { return memory_.peak(); }
    int64_t peak_host_bytes() const { return host_memory_.peak(); }
    size_t peak_entries() const { return peak_entries_; }
    size_t peak_owed() const { return peak_owed_; }

private:
    Arena memory_, host_memory_;
    static Tensor pop_from(std::vector<Kept>& stack, const void* owner);
    void add(Ctx& c, const WeightGradient& gradient);

    std::vector<Kept> kept_, on_host_;
    std::vector<WeightGradient> owed_;
    bool owing_ = false;
    size_t peak_entries_ = 0, peak_owed_ = 0;
};

/// Rewinds a frame at the end of a block: what was kept for a backward that ran, or that will not. What
/// weight gradients that are owed need stays.
class FrameScope {
public:
    explicit FrameScope(Frame& frame) : frame_(frame), mark_(frame.mark()) {}
    ~FrameScope() {
        if (!frame_.is_owing()) frame_.rewind(mark_);
    }
    FrameScope(const FrameScope&) = delete;
    FrameScope& operator=(const FrameScope&) = delete;

private:
    Frame& frame_;
    Frame::Mark mark_;
};

}  // namespace coeus
