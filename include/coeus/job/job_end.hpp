// SPDX-License-Identifier: Apache-2.0
// JobEnd: how much time is left until this job is ended, by Slurm or by the deck's limit.
#pragma once

#include "coeus/base/clock.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace coeus {

/// When Slurm will end the job of this process, in seconds since 1970. It asks squeue; if squeue does not
/// answer, it takes COEUS_JOB_END, which the job script sets. None if there is no job, no limit or no answer.
/// After the signal of a preemption it is the end of the grace time. May take seconds.
std::optional<double> slurm_job_end();

/// A message of rank 0 to the job script, which does not rely only on the launcher's exit code.
enum class JobNote {
    complete,    ///< training has reached its last step
    lost_folder  ///< another run has taken the folder: this job must not be requeued
};
/// Writes "complete" or "lost_folder" to the file that COEUS_DONE_FILE names, if it is set; does not follow a
/// link there. SystemError if the file cannot be written.
void tell_job_script(JobNote note);

/// Used by one rank, which tells the others.
class JobEnd {
public:
    /// Returns the end in seconds since 1970; none: not known.
    using Ask = std::function<std::optional<double>()>;
    struct Options {
        std::optional<double> wall_seconds;  ///< the deck's limit, counted from `start`; none: no limit
        double start = steady_seconds();     ///< by the clock `now`
        Ask ask;                 ///< called repeatedly, since the limit of a job may be changed; null: never
        double ask_every = 300;  ///< seconds between calls of `ask`
        /// The clock for the answers of `ask`, in seconds since 1970. It is read once per answer, so that
        /// setting the clock later changes nothing.
        std::function<double()> epoch = seconds_since_1970;
        std::function<double()> now = steady_seconds;  ///< a clock that nobody sets
    };
    /// `margin` seconds before the end it calls note_out_of_time() (coeus/base/stop_signals.hpp), for loops
    /// that are far from the next safe point of all ranks. If the job gets more time after that, it is
    /// ignored.
    explicit JobEnd(Options options, double margin = 0);
    /// Does not wait for an `ask` that has not answered; its thread then continues by itself.
    ~JobEnd();
    JobEnd(const JobEnd&) = delete;
    JobEnd& operator=(const JobEnd&) = delete;

    /// Seconds until the earlier of both ends, which may be negative; none if no end is known.
    std::optional<double> seconds_left() const;
    /// Calls `ask` again and waits at most `seconds` for the answer: a signal may have changed the end.
    void ask_again(double seconds);

private:
    struct State;
    std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
    std::thread thread_;
};

}  // namespace coeus
