// SPDX-License-Identifier: Apache-2.0
// The report on a hang, from the states of all ranks: a table of the current operation of each rank and of
// the ranks for which it waits, the likely cause, and the call stacks of the ranks that hold the others up.
#pragma once

#include "rank_state.hpp"

namespace coeus {

/// The event that caused the report.
struct HangOccasion {
    enum class Kind : uint8_t {
        by_hand,  ///< a user asked for it; the run continues
        overdue,  ///< an operation has taken too long
        death,
        crash,
        error
    };
    Kind kind = Kind::by_hand;
    int rank = 0;      ///< the rank that noticed the event
    std::string text;  ///< what it noticed: "Rank 3 has died."
    /// True if the run ends after the report.
    bool ends() const { return kind != Kind::by_hand; }
};

enum class HangCause : uint8_t {
    none,
    died,
    crashed,
    stopped,
    order,  ///< ranks do not call the same operations in the same order
    error,
    silent,
    disk,
    data,
    gpu,        ///< a GPU has not reached an operation in its queue, or its driver does not answer
    held_up,    ///< a rank entered the operation in which the others wait, but is not in MPI
    computing,  ///< a rank is slow, or hangs in code of its own
    network,    ///< all ranks have entered the operation
    graph       ///< all ranks have launched the step as CUDA graphs, which cannot be inspected
};

struct HangReport {
    HangCause cause = HangCause::none;
    std::vector<int> ranks;  ///< the ranks that hold the others up
    std::string text;        ///< the report, several lines
};

/// `states`: the state of every rank, in the order of ranks.
HangReport hang_report(const HangOccasion& occasion, const std::vector<RankState>& states);

/// "0, 2 - 5, 9"
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace coeus
