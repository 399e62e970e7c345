// SPDX-License-Identifier: Apache-2.0
// MeetingPlace: a folder in which the watchdogs of all hosts exchange what their ranks are at. A run's folder
// is on a file system that all its hosts see: this needs no port, and neither MPI nor the rank that hangs.
//   report.txt       the reports of all runs
//   RUN/events       a line for each event and for its end: "3 ends", "3 over"; it is there from the start,
//                    since network file systems remember for a while that a file is absent
//   RUN/event_3      whoever makes it collects the records and reports
//   RUN/rank_0.json  what rank 0 was at in the last event
// RUN is a name that each start draws for itself: runs that share the folder do not see each other's events.
#pragma once

#include "rank_state.hpp"

#include <filesystem>

namespace coeus {

class MeetingPlace {
public:
    /// `run`: its own folder below `folder`, the same on all ranks. `prefix`: of the ranks' files.
    MeetingPlace(const std::filesystem::path& folder, const std::string& run, std::string prefix);
    /// Makes the run's folder. Rank 0 calls it before the others look. SystemError if it cannot be written.
    void prepare() const;
    /// Removes the run's folder if there was no event. Rank 0 calls it when the run ends.
    void leave() const;

    struct Event {
        int64_t number = 0;
        bool ends = false;  ///< the run
        bool over = false;  ///< it was reported
    };
    /// The last one.
    Event newest() const;
    /// True: this process collects. False: another one does.
    bool claim(int64_t event) const;
    void announce(int64_t event, bool ends) const;
    void conclude(int64_t event, const std::string& report) const;

    void write(int64_t event, const RankState& state) const;
    /// Before read() of what other hosts write: network file systems look again where a folder has changed.
    void look_again() const;
    std::optional<RankState> read(int64_t event, int rank) const;
    std::filesystem::path record_of(int rank) const;
    std::filesystem::path report_file() const { return folder_.parent_path() / "report.txt"; }

private:
    void append(const std::filesystem::path& file, const std::string& text) const;
    std::filesystem::path folder_;
    std::string prefix_;
};

}  // namespace coeus
