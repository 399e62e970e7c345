// SPDX-License-Identifier: Apache-2.0
#include "meeting.hpp"

#include "coeus/base/clock.hpp"

#include <mutex>
#include <utility>

namespace coeus {

namespace {

constexpr double file_patience = 1, conclusion_patience = 2;  // seconds

}  // namespace

Meeting::Meeting(Errands& errands, MeetingPlace place)
    : errands_(&errands), place_(std::make_shared<const MeetingPlace>(std::move(place))) {}

MeetingPlace::Event Meeting::newest() const {
    return errands_->ask<MeetingPlace::Event>(file_patience, {},
                                              [place = place_] { return place->newest(); });
}

std::optional<bool> Meeting::claim(int64_t event) const {
    return errands_->ask<std::optional<bool>>(file_patience, std::nullopt,
                                              [place = place_, event] { return place->claim(event); });
}

void Meeting::announce(int64_t event, bool ends) const {
    errands_->run(file_patience, [place = place_, event, ends] { place->announce(event, ends); });
}

void Meeting::conclude(int64_t event, const std::string& report) const {
    errands_->run(conclusion_patience, [place = place_, event, report] { place->conclude(event, report); });
}

void Meeting::leave() const {
    errands_->run(file_patience, [place = place_] { place->leave(); });
}

void Meeting::write(int64_t event, const RankState& state) const {
    errands_->run(file_patience, [place = place_, event, state] { place->write(event, state); });
}

void Meeting::write_for(int64_t event, const std::vector<RankState>& states) const {
    errands_->run(file_patience, [place = place_, event, states] {
        for (const RankState& state : states)
            if (!place->read(event, state.rank)) place->write(event, state);
    });
}

std::vector<RankState> Meeting::read(int64_t event, const std::vector<int>& ranks, double seconds) const {
    struct Found {
        std::mutex mutex;
        std::vector<RankState> states;
    };
    const auto found = std::make_shared<Found>();
    errands_->run(seconds, [place = place_, event, ranks, seconds, found] {
        const Timer timer;
        place->look_again();
        for (const int rank : ranks)
            if (timer.seconds() > 0.9 * seconds)
                return;  // end before errands_ would count it as late
            else if (auto state = place->read(event, rank)) {
                const std::lock_guard lock(found->mutex);
                found->states.push_back(std::move(*state));
            }
    });
    const std::lock_guard lock(found->mutex);
    return std::move(found->states);
}

}  // namespace coeus
