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

}  // namespace coeus::cuda
