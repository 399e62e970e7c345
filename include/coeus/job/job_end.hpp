// SPDX-License-Identifier: Apache-2.0
// JobEnd: when this job will be ended, as Slurm or the deck says.
#pragma once

#include "coeus/base/clock.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace coeus {

/// Seconds since 1970 at which Slurm will end the job of this process, by squeue, or where
/// that does not answer as COEUS_JOB_END says, of the job script; nothing where there is no job, no limit or
/// no answer. After a signal of a preemption that is the end of its grace time. It may take seconds.
std::optional<double> slurm_job_end();

/// What rank 0 tells a job script, which does not trust its launcher's exit code alone.
enum class JobNote {
    complete,    ///< training has reached its last step
    lost_folder  ///< another run has the folder: this job is not to be queued again
};
/// Writes "complete" or "lost_folder" to the file that COEUS_DONE_FILE names, if it is set; a link there is
/// not followed. SystemError if that cannot be.
void tell_job_script(JobNote note);

/// Of one rank, which tells the others.
class JobEnd {
public:
    /// Seconds since 1970; nothing: not known.
    using Ask = std::function<std::optional<double>()>;
    struct Options {
        std::optional<double> wall_seconds;  ///< from `start` on, whatever the job has
        double start = steady_seconds();     ///< of `now`
        Ask ask;                 ///< now and again, since a job's limit may be changed; null: never
        double ask_every = 300;  ///< seconds
        /// Seconds since 1970, for what `ask` says, when it says it: a clock that is set later changes
        /// nothing.
        std::function<double()> epoch = seconds_since_1970;
        std::function<double()> now = steady_seconds;  ///< a clock that is never set
    };
    /// `margin` seconds before the end it notes that time is over (coeus/base/stop_signals.hpp), for loops
    /// that are far from the next safe point of all ranks; more time after that comes too late.
    explicit JobEnd(Options options, double margin = 0);
    /// Waits for no answer that is not there yet; `ask` then goes on behind it.
    ~JobEnd();
    JobEnd(const JobEnd&) = delete;
    JobEnd& operator=(const JobEnd&) = delete;

    /// Until the earlier of both ends, perhaps negative; nothing where none is known.
    std::optional<double> seconds_left() const;
    /// Asks once more, and waits for the answer, `seconds` at most: a signal may have come with a new end.
    void ask_again(double seconds);

private:
    struct State;
    std::shared_ptr<State> state_;  // with the thread, which may outlive this
    std::thread thread_;
};

}  // namespace coeus
