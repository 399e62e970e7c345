// SPDX-License-Identifier: Apache-2.0
// A program that uses this class replaces system calls that read and write files: those that write are
// recorded, writes can be made short or interrupted, and reads can fail.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace coeus::test {

class SystemCalls {
public:
    /// Records from now on until the object is destroyed. Only one may exist at a time.
    SystemCalls();
    ~SystemCalls();
    SystemCalls(const SystemCalls&) = delete;
    SystemCalls& operator=(const SystemCalls&) = delete;

    /// "pwrite step-00000100.h5.part", "fsync checkpoint", "rename step-00000100.h5", in order.
    std::vector<std::string> noted() const;

    int64_t most_bytes = std::numeric_limits<int64_t>::max();  ///< that one pwrite writes
    bool interrupts = false;                                   ///< every second pwrite fails with EINTR
    int64_t good_reads = 0, failing_reads = 0;  ///< so many preads succeed, then so many fail with read_error
    int read_error = 0;
    int64_t failing_looks = 0;  ///< so many stats fail with look_error
    int look_error = 0;
};

}  // namespace coeus::test
