// SPDX-License-Identifier: Apache-2.0
// Stop: all ranks agree that the run ends before its last step: a signal came to one of them, or the job's
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
    /// `end`: when the job is ended, and `margin`: seconds before that to be done with saving; of rank 0.
    Stop(const Communicator& world, JobEnd::Options end, double margin);

    /// One small reduction at a safe point, which all ranks reach alike: true once any rank was told to stop.
    /// `needed`: seconds until the next safe point and for saving.
    bool agreed(double needed = 0);
    bool is_agreed() const { return reason_ != 0; }
    /// "SIGUSR1", "the end of the job's time".
    std::string reason() const;
    /// Once agreed: seconds until this process will be killed, as rank 0 knows it; nothing: not known.
    /// Collective.
    std::optional<double> seconds_left();
    /// At a safe point of the start: throws StoppedError where it is agreed.
    void end_if_agreed(const char* state);

private:
    const Communicator& world_;
    JobEnd end_;
    double margin_;
    StopReason reason_ = 0;
};

}  // namespace coeus
