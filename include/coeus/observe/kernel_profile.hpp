// SPDX-License-Identifier: Apache-2.0
// Where a step's time goes: time, calls, arithmetic and bytes of each kind of kernel, as Exec's observer sees
// them: on the host from the thread that runs them, on a GPU from its queue.
#pragma once

#include "coeus/device/timestamps.hpp"

#include <string>
#include <vector>

namespace coeus {

/// What the machine can do with this rank's threads, for comparison.
struct MachineRates {
    double flops_per_second = 0;  ///< of its GEMM in the compute type; 0: unknown
    double bytes_per_second = 0;  ///< copied, read and written
};

class KernelProfile final : public KernelObserver {
public:
    /// `stamps`: of the computation that is observed.
    explicit KernelProfile(Timestamps stamps = {});

    void begin(const char* kernel, double flops, double bytes) override;
    void end() override;
    /// Counts a step of so many seconds, `data_seconds` of it waiting for its data, and the time of the
    /// kernels until now.
    void end_step(double seconds, double data_seconds);
    /// One line a kernel, the largest share first, then what was outside of kernels. "" before the first
    /// step.
    std::string table(const MachineRates& machine) const;

private:
    struct Entry {
        const char* kernel;  // names are literals: the same name is the same pointer, or nearly always
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
    std::vector<Call> calls_;  // of the step
    int64_t steps_ = 0;
    double seconds_ = 0, data_seconds_ = 0;
};

}  // namespace coeus
