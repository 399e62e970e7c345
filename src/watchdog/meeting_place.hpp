// SPDX-License-Identifier: Apache-2.0
// MeetingPlace: a folder in which the watchdogs of all hosts exchange the states of their ranks. A run's
// folder is on a file system that all its hosts share. So this needs no port, no MPI, and no answer from the
// rank that hangs.
//   report.txt       the reports of all runs
//   RUN/events       a line for each event and for its end: "3 ends", "3 over". It exists from the start,
//                    since network file systems remember for a while that a file is absent
//   RUN/event_3      the process that creates it collects the records and reports
//   RUN/rank_0.json  the state of rank 0 in the last event
// RUN is a random name that each start chooses: runs that share the folder do not see each other's events.
#pragma once

#include "rank_state.hpp"

#include <filesystem>

namespace coeus {

class MeetingPlace {
public:
    /// `run`: name of the run's own folder below `folder`, the same on all ranks. `prefix`: of the names of
    /// the ranks' files.
    MeetingPlace(const std::filesystem::path& folder, const std::string& run, std::string prefix);
    /// Makes the run's folder. Rank 0 calls it before the other ranks look there. SystemError if it cannot be
    /// written.
    void prepare() const;
    /// Removes the run's folder if there was no event. Rank 0 calls it when the run ends.
    void leave() const;

    struct Event {
        int64_t number = 0;  ///< 0: there was no event
        bool ends = false;   ///< the run ends with it
        bool over = false;   ///< it was reported
    };
    /// The last event.
    Event newest() const;
    /// True: this process collects the states. False: another one does.
    bool claim(int64_t event) const;
    /// Tells all hosts of the event.
    void announce(int64_t event, bool ends) const;
    /// Appends the report to report.txt and marks the event as over.
    void conclude(int64_t event, const std::string& report) const;

    void write(int64_t event, const RankState& state) const;
    /// Call it before read() of files that other hosts write: network file systems look again into a folder
    /// that has changed.
    void look_again() const;
    /// None if the rank has not written its state in this event.
    std::optional<RankState> read(int64_t event, int rank) const;
    std::filesystem::path record_of(int rank) const;
    std::filesystem::path report_file() const { return folder_.parent_path() / "report.txt"; }

private:
    void append(const std::filesystem::path& file, const std::string& text) const;
    std::filesystem::path folder_;
    std::string prefix_;
};

}  // namespace coeus
