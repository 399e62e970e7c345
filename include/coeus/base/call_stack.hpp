// SPDX-License-Identifier: Apache-2.0
// CallStack: the chain of function calls of a thread. It needs no debugger; the names are those that the
// program and its libraries export.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

class CallStack {
public:
    /// Captures the calling thread's stack. Safe in a signal handler after load() was called once.
    void capture();
    /// Loads the library that capture() needs, which may allocate memory.
    static void load();

    struct Call {
        std::string function;  ///< empty if the function is not exported
        std::string object;    ///< program or library: "coeus", "libmpi.so.40"
        uintptr_t offset = 0;  ///< in the object, in the form that addr2line expects
        /// "coeus::Trainer::run in coeus"
        std::string text() const;
    };
    /// The innermost call first; at most 64 calls.
    std::vector<Call> calls() const;

private:
    std::array<void*, 64> addresses_ = {};
    int count_ = 0;
};

}  // namespace coeus
