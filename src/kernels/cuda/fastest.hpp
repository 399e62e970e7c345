// SPDX-License-Identifier: Apache-2.0
// A short timed search among versions of a kernel.
#pragma once

#include "coeus/base/function_ref.hpp"

namespace coeus::cuda {

/// Returns the number of the fastest of several candidates, of which the first is expected to be best.
/// `seconds` runs one and returns how long it took, or infinity if it cannot be run. Each candidate has one
/// run that is not counted, then a few in turn with the others, of which its best counts. A later candidate
/// is chosen only if it is 2 % faster than an earlier one. Returns 0 if none can be run.
int fastest(int candidates, FunctionRef<double(int)> seconds);

}  // namespace coeus::cuda
