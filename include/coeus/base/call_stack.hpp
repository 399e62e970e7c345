// SPDX-License-Identifier: Apache-2.0
// CallStack: where a thread is, as a list of calls. No debugger is needed; names are those that the program
// and its libraries export.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace coeus {

class CallStack {
public:
    /// Of the calling thread. Safe in a signal handler, once load() was called.
    void capture();
    /// Loads what capture() needs, which may take memory.
    static void load();

    struct Call {
        std::string function;  ///< "" where it is not exported
        std::string object;    ///< program or library: "coeus", "libmpi.so.40"
        uintptr_t offset = 0;  ///< in it, as addr2line takes it
        /// "coeus::Trainer::run in coeus"
        std::string text() const;
    };
    /// The innermost first.
    std::vector<Call> calls() const;

private:
    std::array<void*, 64> addresses_ = {};
    int count_ = 0;
};

}  // namespace coeus
