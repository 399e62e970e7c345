// SPDX-License-Identifier: Apache-2.0
// A short timed search among versions of a kernel.
#pragma once

#include "coeus/base/function_ref.hpp"

#include <vector>

namespace coeus::cuda {

/// The least time of each of several candidates, in seconds. `seconds` runs one and returns how long it took,
/// or infinity if it cannot be run. Each candidate has one run that is not counted, then a few in turn with
/// the others.
std::vector<double> least_seconds(int candidates, FunctionRef<double(int)> seconds);

struct Fastest {
    int number;
    double seconds;  ///< infinity if none can be run
};
/// Searches for the fastest of several candidates, of which the first is expected to be best. The two that
/// are best in least_seconds() are then timed once more, in turn with each other only, and these times count.
/// A later candidate is chosen only if it is 2 % faster than an earlier one. The first is returned if none
/// can be run.
Fastest fastest(int candidates, FunctionRef<double(int)> seconds);

/// A candidate's time in short turns and in long ones, in seconds.
struct Steadiest {
    int of_short_turns = 0;     ///< the first candidate that no other one is 2 % faster than in short turns
    double shortest_turn = 0;   ///< its time in these; infinity if none can be run
    int number = 0;             ///< the one with the least mean time of long turns
    std::vector<double> means;  ///< of long turns; infinity for candidates that had none
};
/// The four candidates that are fastest in least_seconds(), and `kept` (-1: none), have two turns of about
/// `turn_seconds` each, in turn with each other, after a turn of three times as long. `mean(i, runs)` runs
/// candidate i so often without a pause, and returns the mean time of a run.
Steadiest steadiest(int candidates, int kept, double turn_seconds, FunctionRef<double(int)> seconds,
                    FunctionRef<double(int, int)> mean);

}  // namespace coeus::cuda
