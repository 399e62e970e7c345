// SPDX-License-Identifier: Apache-2.0
// Meeting: a watchdog's calls of the MeetingPlace, run by Errands. Each call returns within a fixed time,
// whether the file system answers or not.
#pragma once

#include "errands.hpp"
#include "meeting_place.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

class Meeting {
public:
    Meeting(Errands& errands, MeetingPlace place);

    /// The last event; a default Event if the file system does not answer.
    MeetingPlace::Event newest() const;
    /// True: this process collects. False: another one does. None: the file system does not answer, and each
    /// host reports on its own.
    std::optional<bool> claim(int64_t event) const;
    void announce(int64_t event, bool ends) const;
    void conclude(int64_t event, const std::string& report) const;
    void write(int64_t event, const RankState& state) const;
    /// Writes the states of those of these ranks that have not written one.
    void write_for(int64_t event, const std::vector<RankState>& states) const;
    /// The states that these ranks have written, as many as can be read within `seconds`.
    std::vector<RankState> read(int64_t event, const std::vector<int>& ranks, double seconds) const;
    /// Call it when the run ends.
    void leave() const;
    std::filesystem::path folder() const { return place_->record_of(0).parent_path(); }

private:
    Errands* errands_;
    std::shared_ptr<const MeetingPlace> place_;
};

}  // namespace coeus
