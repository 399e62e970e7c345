// SPDX-License-Identifier: Apache-2.0
// Meeting: what a watchdog does in the MeetingPlace, by errands: each call returns within its patience,
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

    /// The last event; none where there is no answer.
    MeetingPlace::Event newest() const;
    /// False: another one collects. Nothing: there is no answer, and everyone is on his own.
    std::optional<bool> claim(int64_t event) const;
    void announce(int64_t event, bool ends) const;
    void conclude(int64_t event, const std::string& report) const;
    void write(int64_t event, const RankState& state) const;
    /// For those ranks that have not written what they are at.
    void write_for(int64_t event, const std::vector<RankState>& states) const;
    /// What these ranks have written, as far as it can be read in so many seconds.
    std::vector<RankState> read(int64_t event, const std::vector<int>& ranks, double seconds) const;
    /// The run ends.
    void leave() const;
    std::filesystem::path folder() const { return place_->record_of(0).parent_path(); }

private:
    Errands* errands_;
    std::shared_ptr<const MeetingPlace> place_;
};

}  // namespace coeus
