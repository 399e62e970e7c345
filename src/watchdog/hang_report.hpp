// SPDX-License-Identifier: Apache-2.0
// What the states of all ranks say together: a table of who is at what and waits for whom, the likely cause,
// and where the ranks are that hold the others up.
#pragma once

#include "rank_state.hpp"

namespace coeus {

/// Why the ranks were asked.
struct HangOccasion {
    enum class Kind : uint8_t {
        by_hand,  ///< a user wants to know; the run goes on
        overdue,  ///< something has taken too long
        death,
        crash,
        error
    };
    Kind kind = Kind::by_hand;
    int rank = 0;      ///< that has noticed
    std::string text;  ///< what it has noticed: "rank 3 has died"
    bool ends() const { return kind != Kind::by_hand; }
};

enum class HangCause : uint8_t {
    none,
    died,
    crashed,
    stopped,
    order,  ///< ranks do not agree on what they do together
    error,
    silent,
    disk,
    data,
    gpu,        ///< has not come to what its host gave it, or its driver does not answer
    held_up,    ///< has come to where the others wait, but is not in MPI
    computing,  ///< or hangs in code of its own
    network,    ///< all ranks are there
    graph       ///< all GPUs have their step, and nobody sees into that
};

struct HangReport {
    HangCause cause = HangCause::none;
    std::vector<int> ranks;  ///< that hold the others up, or did
    std::string text;        ///< for people, of several lines
};

/// `states`: of every rank, by its number.
HangReport hang_report(const HangOccasion& occasion, const std::vector<RankState>& states);

/// "0, 2 - 5, 9"
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace coeus
