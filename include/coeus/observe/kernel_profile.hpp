// SPDX-License-Identifier: Apache-2.0
// KernelProfile: time, calls, FLOPs and bytes of each kind of kernel in a step. As an observer of Exec it
// takes the times on the host from the thread that runs the kernels, and on a GPU from its queue.
#pragma once

#include "coeus/device/timestamps.hpp"

#include <string>
#include <vector>

namespace coeus {

/// Peak rates of this rank's device or threads, for comparison.
struct MachineRates {
    double flops_per_second = 0;  ///< GEMM in the compute type; 0: unknown
    double bytes_per_second = 0;  ///< bytes read and written by a copy
};

class KernelProfile final : public KernelObserver {
public:
    /// `stamps`: clock of the observed computation.
    explicit KernelProfile(Timestamps stamps = {});

    void begin(const char* kernel, double flops, double bytes) override;
    void end() override;
    /// Counts a step that took `seconds`, of which it waited `data_seconds` for data, and adds the times of
    /// its kernels.
    void end_step(double seconds, double data_seconds);
    /// One line per kernel, largest share of the time first; then the time outside of kernels. "" before the
    /// first step.
    std::string table(const MachineRates& machine) const;

private:
    struct Entry {
        const char* kernel;  // a literal: equal names nearly always have equal pointers
        int64_t calls;
        double seconds, flops, bytes;
    };
    struct Call {
        Entry& entry;
        Timestamp begin, end;
    };
    Entry& entry_of(const char* kernel);

    Timestamps stamps_;
    std::vector<Entry> entries_;
    std::vector<Call> calls_;  // in the present step
    int64_t steps_ = 0;
    double seconds_ = 0, data_seconds_ = 0;
};

}  // namespace coeus
