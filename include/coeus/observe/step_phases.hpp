// SPDX-License-Identifier: Apache-2.0
// StepPhases: divides the time of a rank's steps into waiting for data, waiting for other ranks along each
// axis of the mesh, and the rest, which is its own computation. It observes exchanges; each costs two clock
// reads.
#pragma once

#include "coeus/device/timestamps.hpp"

#include <array>
#include <vector>

namespace coeus {

/// `along_pp` to `world`: exchanges with the ranks along an axis for which the computation waited.
/// `along_dp`: exchanges of weights and gradients among shards and replicas, those of experts over efsdp too,
/// since a layer waits for all its weights at once; `world`: the few numbers that all ranks exchange in a
/// step.
enum class StepPhase : uint8_t {
    data,
    compute,
    saving,
    along_pp,
    along_tp,
    along_cp,
    along_ep,
    along_dp,
    world
};
constexpr size_t num_step_phases = 9;
const char* name_of(StepPhase phase);

/// Seconds by StepPhase.
struct PhaseTimes {
    std::array<double, num_step_phases> seconds{};
    double& operator[](StepPhase phase) { return seconds[size_t(phase)]; }
    double operator[](StepPhase phase) const { return seconds[size_t(phase)]; }
};

/// The phase to which an exchange belongs.
StepPhase phase_of(Exchange exchange);

class StepPhases final : public KernelObserver {
public:
    /// `stamps`: clock of the observed computation.
    explicit StepPhases(Timestamps stamps = {});

    /// Begins a step that is observed, until end_step().
    void begin_step();
    void begin(const char* kernel, double flops, double bytes) override;
    void begin_exchange(Exchange exchange, double bytes) override;
    void end() override;

    /// Counts a step that took `seconds`, of which it waited `data_seconds` for data. begin_step() may or may
    /// not have been called for it. A GPU has finished the work of the step.
    void end_step(double seconds, double data_seconds);
    /// Adds this rank's own part of a save for which training waited.
    void add_saving(double seconds) { sums_[StepPhase::saving] += seconds; }
    int64_t steps() const { return steps_; }
    double step_seconds() const { return steps_ > 0 ? seconds_ / double(steps_) : 0; }
    /// Means per step since restart(). For `compute` and the exchanges the mean is over the observed steps;
    /// NaN if there were none.
    PhaseTimes means() const;
    void restart();

private:
    struct Wait {
        StepPhase phase;
        Timestamp begin, end;
    };
    Timestamps stamps_;
    std::vector<Wait> waits_;  // in the present step
    int within_ = 0;           // number of exchanges and kernels that have begun and not ended
    int exchange_at_ = 0;      // value of `within_` for the outermost exchange; 0: none
    bool sees_ = false;
    int64_t steps_ = 0, seen_steps_ = 0;
    double seconds_ = 0;
    PhaseTimes sums_;
};

}  // namespace coeus
