// SPDX-License-Identifier: Apache-2.0
// Arena: a bump allocator over one Buffer, or over nothing, when it only measures (the planning run).
#pragma once

#include "coeus/device/memory.hpp"

namespace coeus {

class Arena;

/// Sees what an arena hands out and takes back.
class ArenaObserver {
public:
    virtual ~ArenaObserver() = default;
    /// The tensor lies `first` bytes from the beginning.
    virtual void allocated(const Arena& arena, int64_t first, const Tensor& tensor) = 0;
    /// Everything from `mark` on.
    virtual void rewound(const Arena& arena, int64_t mark) = 0;
};

class Arena {
public:
    /// Measures only: hands out addresses that nobody may follow, without a limit.
    Arena() = default;
    /// Over a buffer of its own. `what` names it in errors and in the plan.
    Arena(int64_t bytes, const std::string& what, const Memory& memory = host_memory());

    bool planning() const { return planning_; }
    /// Elements aligned to 64 bytes, contents undefined. Throws LogicError beyond the end: the plan was
    /// wrong.
    Tensor alloc(Dtype dtype, const Shape& shape);
    /// Notes that `bytes` more would be needed for a moment, without keeping them (planning of workspaces).
    void touch(int64_t bytes);
    int64_t mark() const { return used_; }
    /// Frees everything after the mark; debug builds fill the host's with NaN, so that a use after it shows.
    void rewind(int64_t mark);
    /// The most that was ever in use, in bytes.
    int64_t peak() const { return peak_; }
    /// Of its buffer; 0 where it only measures.
    int64_t bytes() const { return buffer_.bytes(); }

    /// Borrowed; null, the usual case: nobody.
    void observe(ArenaObserver* observer) { observer_ = observer; }

private:
    Buffer buffer_;
    ArenaObserver* observer_ = nullptr;
    bool planning_ = true;
    int64_t used_ = 0, peak_ = 0;
};

/// Rewinds an arena at the end of a block. Results are allocated before the Scope opens.
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
