// SPDX-License-Identifier: Apache-2.0
// StepPhases: what the time of a rank's steps goes to: waiting for data, waiting for other ranks along each
// axis of the mesh, and the rest, which is its own computation. An observer of exchanges; each costs two
// looks at the clock.
#pragma once

#include "coeus/device/timestamps.hpp"

#include <array>
#include <vector>

namespace coeus {

/// `along_pp` to `world`: exchanges with the ranks along an axis that the computation waited for. `along_dp`:
/// weights and gradients, of shards and replicas; `world`: the few numbers that all ranks exchange in a step.
enum class StepPhase : uint8_t { data, compute, saving, along_pp, along_tp, along_cp, along_dp, world };
constexpr size_t num_step_phases = 8;
const char* name_of(StepPhase phase);

/// Seconds by StepPhase.
struct PhaseTimes {
    std::array<double, num_step_phases> seconds{};
    double& operator[](StepPhase phase) { return seconds[size_t(phase)]; }
    double operator[](StepPhase phase) const { return seconds[size_t(phase)]; }
};

/// Where the time of an exchange belongs.
StepPhase phase_of(Exchange exchange);

class StepPhases final : public KernelObserver {
public:
    /// `stamps`: of the computation that is observed.
    explicit StepPhases(Timestamps stamps = {});

    /// From now on until end_step() this is to observe the computation.
    void begin_step();
    void begin(const char* kernel, double flops, double bytes) override;
    void begin_exchange(Exchange exchange, double bytes) override;
    void end() override;

    /// Counts a step of so many seconds, `data_seconds` of it waiting for its data, seen by begin_step() or
    /// not. Of a GPU's the work is done.
    void end_step(double seconds, double data_seconds);
    /// This rank's own part of a save that training waited for.
    void add_saving(double seconds) { sums_[StepPhase::saving] += seconds; }
    int64_t steps() const { return steps_; }
    double step_seconds() const { return steps_ > 0 ? seconds_ / double(steps_) : 0; }
    /// Means over the steps since restart(); of `compute` and the exchanges over those that were seen, and
    /// not a number where none was.
    PhaseTimes means() const;
    void restart();

private:
    struct Wait {
        StepPhase phase;
        Timestamp begin, end;
    };
    Timestamps stamps_;
    std::vector<Wait> waits_;  // of the step
    int within_ = 0;           // exchanges and kernels that have begun and not ended
    int exchange_at_ = 0;      // `within_` of the one under way; 0: none
    bool sees_ = false;
    int64_t steps_ = 0, seen_steps_ = 0;
    double seconds_ = 0;
    PhaseTimes sums_;
};

}  // namespace coeus
