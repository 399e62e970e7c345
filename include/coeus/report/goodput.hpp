// SPDX-License-Identifier: Apache-2.0
// Goodput: the share of a run's wall time that went into steps that count, over all its starts.
//
// goodput.jsonl in the run's folder has what rank 0 knows, appended while it runs: a line when training
// begins, then now and then, at each checkpoint and at the end, each with the sums of its start so far. So a
// run that is killed loses the time since its last line, which then counts as time between two starts.
#pragma once

#include "coeus/base/clock.hpp"
#include "coeus/base/telemetry_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// What one start of a run did until some time. Seconds of wall time.
struct StartTimes {
    double start = 0;  ///< since 1970: when its process began; tells starts apart
    double time = 0;   ///< since 1970: of these sums
    int64_t step = 0;  ///< steps taken, of the run
    double start_up = 0;
    double steps = 0;  ///< whole steps, with the waiting for data
    double data = 0;   ///< of those
    double validation = 0;
    double saving = 0;      ///< that training waited for
    double taken_back = 0;  ///< whole steps that guards refused or took back
    int64_t steps_taken_back = 0;
};

/// Sums over all starts; what is not said is the rest of `wall`.
struct Goodput {
    int64_t starts = 0, steps = 0, repeated_steps = 0;
    double wall = 0;      ///< from the first process's begin to the last line
    double useful = 0;    ///< steps that count, without waiting for data
    double data = 0;      ///< waiting for data in them
    double repeated = 0;  ///< steps that a later start took again, and those that guards took back
    double start_up = 0, validation = 0, saving = 0;
    double between = 0;  ///< from a start's last line to the next start

    double other() const;
    double percent(double seconds) const { return wall > 0 ? 100 * seconds / wall : 0; }
    /// What the wall time went to, with names for people, in the order of pictures; the first is `useful`.
    struct Part {
        const char* name;
        double seconds;
    };
    std::vector<Part> parts() const;
};

/// `lines`: of the file, in order. Where a start begins before the step that another had reached, the steps
/// in between were taken again: their time is taken from the sums, between two lines in proportion.
Goodput goodput_of(const std::vector<StartTimes>& lines);

/// Lines that are not whole are passed over; none where there is no such file.
std::vector<StartTimes> read_start_times(const std::filesystem::path& file);

/// "Goodput 91.2 % (2 h 05 m in 2 starts): start-up 0.6 %, between starts 5.0 %, repeated steps 2.1 % (40),
/// saving 1.1 %"
std::string goodput_text(const Goodput& goodput);

/// Counts the time of this start, and on rank 0 keeps it in the file.
class GoodputClock {
public:
    static constexpr double pause = 10;  ///< seconds between lines that need not be

    /// Training begins now, after so many seconds of start-up, behind `step`. `file`: empty on other ranks.
    /// SystemError where the file cannot be opened.
    GoodputClock(const std::filesystem::path& file, double start_up, int64_t step);

    void add_step(double seconds, double data_seconds);
    /// The last so many steps do not count after all: their share of those that did in this start.
    void take_back(int64_t steps);
    /// What `work` takes is counted as that: `&StartTimes::validation`, `&StartTimes::saving`.
    template <class Work>
    void during(double StartTimes::*what, const Work& work) {
        const Timer timer;
        work();
        times_.*what += timer.seconds();
    }
    /// A line, where the last one is a while ago or one was asked for.
    void write(int64_t step);
    void ask_for_line() { asked_ = true; }
    /// A last line; with the file's rank the goodput of all starts in words, else "".
    std::string finish(int64_t step);

private:
    std::optional<TelemetryFile> file_;  // of rank 0
    bool is_written_ = true;             // the last line
    StartTimes times_;
    Timer since_line_;
    bool asked_ = true;
    int64_t steps_that_count_ = 0;  // of this start
};

}  // namespace coeus
