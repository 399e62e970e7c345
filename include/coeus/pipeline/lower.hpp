// SPDX-License-Identifier: Apache-2.0
// Lowering: adds sends and receives to a timetable of computations. The timetable is simulated. Each message
// takes place when its sender's cell ends, and is written into both rows at that time: after the cell that
// sends it, and before the receiver's first cell that starts then or later. So the rows of all ranks are
// parts of one sequence of events, and can run with unbuffered sends in either of two ways:
//   - one after the other on one thread, where each message waits for its other end, or
//   - with a queue for each channel (Action::channel) and messages that overlap with computations. A
//     computation waits only for its own receive, so no time is lost compared with the simulation.
// Neighbouring stages on the same rank exchange no messages.
#pragma once

#include "coeus/pipeline/simulate.hpp"

namespace coeus {

/// A timetable with its messages; Action::peer is set.
struct LoweredTimetable : Timetable {
    /// The first stage that trains something. The stages before it get no gradients: their backwards compute
    /// nothing.
    int first_trained = 0;
};

/// `cost` (all values above 0) only decides where receives are placed. Throws like check().
LoweredTimetable lower(const Timetable& table, const CostModel& cost = {}, int first_trained = 0);

/// How a lowered timetable is run.
enum class Queues {
    one,         ///< a rank waits at each message until it is complete
    per_channel  ///< messages of a channel keep their order; computations wait for their own receive
};

/// Runs a lowered timetable with unbuffered sends. LogicError if it cannot end: if rows wait for each other,
/// a computation has no receive, or messages do not match. `first_trained`: see LoweredTimetable.
void prove_unbuffered(const Timetable& lowered, Queues queues, int first_trained = 0);

}  // namespace coeus
