// SPDX-License-Identifier: Apache-2.0
// A program that uses this stands in for calls of the system that write files: it notes them, and can make
// writes short or interrupted.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace coeus::test {

class SystemCalls {
public:
    /// From here to the end of its life; one at a time.
    SystemCalls();
    ~SystemCalls();
    SystemCalls(const SystemCalls&) = delete;
    SystemCalls& operator=(const SystemCalls&) = delete;

    /// "pwrite step-00000100.h5.part", "fsync checkpoint", "rename step-00000100.h5", in their order.
    std::vector<std::string> noted() const;

    int64_t most_bytes = std::numeric_limits<int64_t>::max();  ///< that one pwrite moves
    bool interrupts = false;                                   ///< each second pwrite ends with EINTR
};

}  // namespace coeus::test
