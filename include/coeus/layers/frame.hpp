// SPDX-License-Identifier: Apache-2.0
// Frame: the memory of one micro-batch between its forward and its backward: an arena and a stack of tensors,
// and the same in host memory for offloaded tensors (block_inputs.hpp).
#pragma once

#include "coeus/device/arena.hpp"
#include "coeus/kernels/routing.hpp"
#include "coeus/state/storage.hpp"

#include <array>
#include <span>
#include <utility>
#include <vector>

namespace coeus {

struct Ctx;

/// A weight gradient that a linear layer requests: dW += dy^T x; for rows in groups, of each group for its
/// own matrix. Several weights may share x. x and dy are in the compute type, or both are operands in 8 bits,
/// as codes or as values. Rows in groups, and rows that must be gathered, are not transposed.
struct WeightGradient {
    struct Part {
        const Storage* storage;
        Operand dy;             ///< [T, O]
        int64_t first_row = 0;  ///< of the rows of dW that belong to dy
    };
    class Parts {
    public:
        static constexpr size_t most = 8;
        Parts() = default;
        Parts(const Storage* storage, const Operand& dy) { add({storage, dy}); }
        /// Not if the weight is frozen: then nobody needs its gradient.
        void add(const Part& part) {
            if (!part.storage->trainable()) return;
            require(count_ < most, "a weight gradient has too many parts");
            all_[count_++] = part;
        }
        std::span<Part> all() { return {all_.data(), count_}; }
        std::span<const Part> all() const { return {all_.data(), count_}; }

    private:
        std::array<Part, most> all_ = {};
        size_t count_ = 0;
    };

    Parts parts;                  ///< of one unit
    Operand x;                    ///< [T, I], or this rank's rows of it; kept in the frame
    int64_t first_col = 0;        ///< of the columns of dW that belong to x
    Groups groups = {};           ///< of the rows of x and dy; absent: they are one group
    bool x_is_scattered = false;  ///< the rows of x must be gathered from the tensor-parallel ranks
    bool x_is_lent = false;   ///< x was recomputed, and is valid only until the end of the layer's backward
    bool dy_is_lent = false;  ///< dy ends with the layer's backward, or is overwritten after it

    size_t unit() const { return parts.all().front().storage->unit(); }
};

/// Computes it now.
void add_gradient(Ctx& c, const WeightGradient& gradient);

class Frame {
public:
    /// A frame that only measures (planning runs).
    Frame() = default;
    /// `bytes`, `entries` and `owed` (weight gradients between I and W) are the sizes that the planning run
    /// measured, so that nothing is allocated later.
    Frame(int64_t bytes, size_t entries, size_t owed = 0, const Memory& memory = host_memory(),
          int64_t host_bytes = 0, const Memory& host = host_memory());

    /// Allocates memory that lives until the frame is rewound, for results and for what the backward needs.
    Tensor keep(Dtype dtype, const Shape& shape) { return memory_.alloc(dtype, shape); }
    /// The same for a tensor of 8-bit floats; see Arena.
    Tensor keep(Dtype dtype, const Shape& shape, ScaleGroups groups, int64_t matrices = 1) {
        return memory_.alloc(dtype, shape, groups, matrices);
    }
    /// Pushes a tensor for the backward. `owner` is the layer. Its backward must pop exactly what its forward
    /// pushed, in reverse order, which debug builds check.
    void push(const void* owner, Tensor tensor);
    Tensor pop(const void* owner);
    /// Allocates host memory, and pushes it to a stack of its own.
    Tensor keep_on_host(const void* owner, Dtype dtype, const Shape& shape);
    Tensor pop_from_host(const void* owner);
    /// A tensor on a stack, and the layer that pushed it.
    struct Kept {
        const void* owner;
        Tensor tensor;
    };
    /// The tensors on the host that the layer that pushed last has pushed, in that order; empty if there are
    /// none.
    std::span<const Kept> last_on_host() const;

    /// Handles a weight gradient; all of them pass through here. It is computed now, or postponed (owed)
    /// while a schedule computes only the gradient of the input, or dropped if all parts are frozen.
    void later(Ctx& c, const WeightGradient& gradient);
    /// While it lives, weight gradients are postponed (I of a split backward). What they need stays in the
    /// frame until it is rewound.
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
    /// False if no backward follows what runs now: then layers need not keep anything for it.
    bool has_backward() const { return has_backward_; }
    /// The postponed weight gradients, in the order of the backward. pay() computes those of one unit and
    /// adds them to its gradients (W).
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
    Operand copy_of(Ctx& c, const Operand& operand, int64_t matrices);
    static Tensor pop_from(std::vector<Kept>& stack, const void* owner);

    std::vector<Kept> kept_, on_host_;
    std::vector<WeightGradient> owed_;
    friend class WithoutBackward;
    bool owing_ = false, has_backward_ = true;
    size_t peak_entries_ = 0, peak_owed_ = 0;
};

/// Rewinds a frame at the end of a block: frees what was kept for a backward that has run, or that will not
/// run. Nothing is freed while weight gradients are postponed, since they need it.
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

/// A FrameScope around operations that no backward follows: evaluation, and a forward that is repeated before
/// its backward.
class [[nodiscard]] WithoutBackward {
public:
    explicit WithoutBackward(Frame& frame)
        : scope_(frame), frame_(frame), before_(std::exchange(frame.has_backward_, false)) {}
    ~WithoutBackward() { frame_.has_backward_ = before_; }
    WithoutBackward(const WithoutBackward&) = delete;
    WithoutBackward& operator=(const WithoutBackward&) = delete;

private:
    FrameScope scope_;
    Frame& frame_;
    bool before_;
};

}  // namespace coeus
