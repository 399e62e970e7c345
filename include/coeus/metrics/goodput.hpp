// SPDX-License-Identifier: Apache-2.0
// Goodput: the share of a run's wall time, over all its starts, that was spent in useful steps.
//
// Rank 0 appends lines to goodput.jsonl in the run's folder: when training begins, every few seconds, at each
// checkpoint and at the end. Each line has the sums of its start so far. If a run is killed, the time since
// its last line counts as time between two starts.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/metrics/start_record.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// The times of one start of a run up to some moment. Seconds of wall time.
struct StartTimes {
    double start = 0;  ///< when the process began, in seconds since 1970; it identifies the start
    double time = 0;   ///< when these sums were taken, in seconds since 1970
    int64_t step = 0;  ///< steps taken by the run
    double start_up = 0;
    double steps = 0;  ///< whole steps, including waiting for data
    double data = 0;   ///< the part of `steps` spent waiting for data
    double validation = 0;
    double saving = 0;      ///< time that training waited for checkpoints
    double taken_back = 0;  ///< whole steps that guards skipped or took back
    int64_t steps_taken_back = 0;
    bool complete = false;  ///< the run had reached its last step: a later start was given more to do
    double job_start = 0;   ///< when Slurm started the job of this start, in seconds since 1970; 0: not known
    std::string end;        ///< last line of a start: why it ended, "complete" or "stopped by SIGTERM"
    std::optional<StartRecord> record;  ///< first line of a start: what it was
};

/// One start of a run, from all of its lines.
struct RunStart {
    StartRecord record;  ///< without facts if the version that wrote the file did not record them
    double begin = 0;    ///< when the process began, in seconds since 1970
    double seconds = 0;  ///< until its last line
    int64_t first_step = 0, last_step = 0;  ///< steps of the run before this start, and at its last line
    std::string end;                        ///< "" if nothing says why it ended
};
/// `lines`: all lines of the file, in order.
std::vector<RunStart> starts_of(const std::vector<StartTimes>& lines);

/// Sums over all starts, in seconds. other() is the rest of `wall`.
struct Goodput {
    int64_t starts = 0, steps = 0, repeated_steps = 0;
    /// From the beginning of the first process to the last line, without `queued` and `idle`.
    double wall = 0;
    double queued = 0;    ///< between two starts, until Slurm started the job: not a loss of the program
    double idle = 0;      ///< after a start that completed the run, until the next one, with more steps
    double useful = 0;    ///< useful steps, without waiting for data
    double data = 0;      ///< waiting for data in useful steps
    double repeated = 0;  ///< steps that a later start repeated, and steps that guards skipped or took back
    double start_up = 0, validation = 0, saving = 0;
    double between = 0;  ///< from a start's last line to the next start, without `queued` and `idle`

    double other() const;
    double percent(double seconds) const { return wall > 0 ? 100 * seconds / wall : 0; }
    /// The parts of the wall time, with the names and in the order in which reports show them. The first is
    /// `useful`.
    struct Part {
        const char* name;
        double seconds;
    };
    std::vector<Part> parts() const;
};

/// `lines`: all lines of the file, in order. If a start begins before the step that an earlier start had
/// reached, the steps in between were repeated. Their time is found from the sums, by interpolation between
/// two lines.
Goodput goodput_of(const std::vector<StartTimes>& lines);

/// Reads goodput.jsonl and skips incomplete lines. Empty if there is no such file.
std::vector<StartTimes> read_start_times(const std::filesystem::path& file);

/// "Goodput 91.2 % (2 h 05 m in 2 starts): start-up 0.6 %, between starts 5.0 %, repeated steps 2.1 % (40),
/// saving 1.1 %"
std::string goodput_text(const Goodput& goodput);

/// Seconds of a run over all its starts, without the time between two of them.
class RunClock {
public:
    /// `file`: goodput.jsonl, with the earlier starts of the run. `own`: seconds since this start began.
    RunClock(const std::filesystem::path& file, double own);
    double seconds() const { return before_ + since_.seconds(); }

private:
    double before_;
    Timer since_;
};

/// Measures the times of this start; rank 0 writes them to the file.
class GoodputClock {
public:
    static constexpr double pause = 10;  ///< least seconds between lines that were not asked for

    /// Training begins now, after step `step` of the run and `start_up` seconds of start-up. `file`: empty on
    /// other ranks than 0. SystemError if the file cannot be opened. The first line has `record`.
    GoodputClock(const std::filesystem::path& file, double start_up, int64_t step,
                 std::optional<StartRecord> record = {});

    void add_step(double seconds, double data_seconds);
    /// The last `steps` steps were not useful. Their time is taken as the mean over the useful steps of this
    /// start.
    void take_back(int64_t steps);
    /// Calls `work` and adds its time to this member: `&StartTimes::validation` or `&StartTimes::saving`.
    template <class Work>
    void during(double StartTimes::*what, const Work& work) {
        const Timer timer;
        work();
        times_.*what += timer.seconds();
    }
    /// Writes a line if the last one is more than `pause` seconds old or ask_for_line() was called.
    void write(int64_t step);
    void ask_for_line() { asked_ = true; }
    /// Writes the last line. `complete`: the run has reached its last step. `end`: why the start ends, in a
    /// few words. Returns on rank 0 the goodput of all starts in words, else "".
    std::string finish(int64_t step, bool complete = false, const std::string& end = "");

private:
    std::optional<TelemetryFile> file_;  // only on rank 0
    bool is_written_ = true;             // the last line could be written
    StartTimes times_;
    Timer since_line_;
    bool asked_ = true;
    int64_t steps_that_count_ = 0;  // useful steps of this start
};

}  // namespace coeus
