// SPDX-License-Identifier: Apache-2.0
// Lowering: sends and receives for a timetable of computations. The timetable is simulated; each message
// takes place when its sender's cell ends, and is written into both rows at that time: behind the cell that
// sends, and before the first cell of the receiver that starts then or later. So the rows of all ranks are
// parts of one sequence of events, and can run with sends that are never buffered:
//   - one after the other on one thread, each message waiting for its other end, or
//   - with a queue for each channel (Action::channel), messages beside the computations; a computation waits
//   for
//     its own receive alone, and then nothing is lost against the simulated time.
// Neighbouring stages on one rank exchange nothing.
#pragma once

#include "coeus/pipeline/simulate.hpp"

namespace coeus {

/// The timetable with its messages; Action::peer is set. `cost` (all above 0) decides only where receives
/// stand. Throws as check() does.
Timetable lower(const Timetable& table, const CostModel& cost = {});

/// How a lowered timetable is run.
enum class Queues {
    one,         ///< a rank waits at each message until it is through
    per_channel  ///< messages of a channel keep their order; computations wait for their own receive
};

/// Runs a lowered timetable with unbuffered sends and throws a LogicError where it cannot end: rows that wait
/// for each other, a computation without its receive, messages that do not match.
void prove_unbuffered(const Timetable& lowered, Queues queues);

}  // namespace coeus
