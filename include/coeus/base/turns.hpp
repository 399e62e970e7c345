// SPDX-License-Identifier: Apache-2.0
// Turns: two functions that take turns on one thread, each with a stack of its own (fibers), so that one
// computes while the other would have to wait.
#pragma once

#include "coeus/base/function_ref.hpp"

#include <memory>

namespace coeus {

class Turns {
public:
    /// Reserves the second stack.
    Turns();
    ~Turns();
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    /// Runs both functions to their ends, beginning with `first`. If one throws, the other is unwound at its
    /// next turn, and the exception is rethrown.
    void run(FunctionRef<void()> first, FunctionRef<void()> second);
    /// Called by one of the functions: the other has its turn, until it calls change() or ends. Returns at
    /// once if the other has ended, or outside of run().
    void change();
    /// True if the other function has begun or will begin, and has not ended.
    bool are_taken() const;

private:
    struct Fibers;
    std::unique_ptr<Fibers> fibers_;
};

}  // namespace coeus
