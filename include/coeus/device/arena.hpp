// SPDX-License-Identifier: Apache-2.0
// Arena: a stack (bump) allocator over one Buffer. In a planning run it has no buffer and only measures.
#pragma once

#include "coeus/device/memory.hpp"

namespace coeus {

class Arena;

/// Notified of what an arena allocates and frees.
class ArenaObserver {
public:
    virtual ~ArenaObserver() = default;
    /// `first` is the tensor's offset in bytes from the beginning of the arena.
    virtual void allocated(const Arena& arena, int64_t first, const Tensor& tensor) = 0;
    /// Everything from offset `mark` on was freed.
    virtual void rewound(const Arena& arena, int64_t mark) = 0;
};

class Arena {
public:
    /// An arena that only measures: it returns addresses that must not be dereferenced, without a limit.
    Arena() = default;
    /// An arena over a buffer of its own. `what` names it in errors and in the memory plan.
    Arena(int64_t bytes, const std::string& what, const Memory& memory = host_memory());

    bool planning() const { return planning_; }
    /// Returns a tensor aligned to 64 bytes, with undefined contents. LogicError if the arena is full: then
    /// the plan was wrong.
    Tensor alloc(Dtype dtype, const Shape& shape);
    /// The same for a tensor of 8-bit floats with its scales; see scale_shape().
    Tensor alloc(Dtype dtype, const Shape& shape, ScaleGroups groups, int64_t matrices = 1);
    /// Counts `bytes` more in peak() without allocating them (planning of workspaces).
    void touch(int64_t bytes);
    int64_t mark() const { return used_; }
    /// Frees everything after the mark. Debug builds fill freed host memory with NaN, so that a use after it
    /// shows.
    void rewind(int64_t mark);
    /// The most bytes that were ever in use.
    int64_t peak() const { return peak_; }
    /// Bytes of its buffer; 0 if it only measures.
    int64_t bytes() const { return buffer_.bytes(); }

    /// Sets the observer, which is borrowed; null (the usual case): none.
    void observe(ArenaObserver* observer) { observer_ = observer; }

private:
    Buffer buffer_;
    ArenaObserver* observer_ = nullptr;
    bool planning_ = true;
    int64_t used_ = 0, peak_ = 0;
};

/// Rewinds an arena at the end of a block. Results are allocated before the Scope is constructed.
class Scope {
public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
    ~Scope() { arena_.rewind(mark_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

private:
    Arena& arena_;
    int64_t mark_;
};

}  // namespace coeus
