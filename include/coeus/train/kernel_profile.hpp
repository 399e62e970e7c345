// SPDX-License-Identifier: Apache-2.0
// Where a step's time goes: wall time, calls, arithmetic and bytes of each kind of kernel, as Exec's observer
// sees them from the thread that launches.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/device/exec.hpp"

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
    /// `now`: seconds of a clock that does not go back; tests bring their own.
    explicit KernelProfile(double (*now)() = steady_seconds);

    void begin(const char* kernel, double flops, double bytes) override;
    void end() override;
    /// Counts a step of so many seconds, `data_seconds` of it waiting for its data.
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
    Entry& entry_of(const char* kernel);

    std::vector<Entry> entries_;
    Entry* running_ = nullptr;
    double (*now_)();
    double start_ = 0;
    int64_t steps_ = 0;
    double seconds_ = 0, data_seconds_ = 0;
};

}  // namespace coeus
