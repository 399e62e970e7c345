// SPDX-License-Identifier: Apache-2.0
// Stop: all ranks agree to end the run before its last step, because one of them got a signal or the job's
// time is nearly over.
#pragma once

#include "coeus/base/stop_signals.hpp"
#include "coeus/comm/communicator.hpp"
#include "coeus/job/job_end.hpp"

#include <optional>
#include <string>

namespace coeus {

class Stop {
public:
    /// `end`: when the job is ended. `margin`: saving must be complete this many seconds before. Both are
    /// used on rank 0.
    Stop(const Communicator& world, JobEnd::Options end, double margin);

    /// True as soon as any rank was told to stop, or if rank 0 has less than `margin + needed` seconds left.
    /// One small reduction: all ranks call it at the same safe point. `needed`: seconds until the next safe
    /// point, and for saving. Collective.
    bool agreed(double needed = 0);
    bool is_agreed() const { return reason_ != 0; }
    /// "SIGUSR1", "the end of the job's time".
    std::string reason() const;
    /// After agreed(): seconds until this process will be killed, as far as rank 0 knows; none: not known.
    /// Collective.
    std::optional<double> seconds_left();
    /// At a safe point of the start: throws StoppedError, whose text ends with `state`, if agreed().
    /// Collective.
    void end_if_agreed(const char* state);

private:
    const Communicator& world_;
    JobEnd end_;
    double margin_;
    StopReason reason_ = 0;
};

}  // namespace coeus
