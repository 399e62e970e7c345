// SPDX-License-Identifier: Apache-2.0
// A short timed search among versions of a kernel.
#pragma once

#include "coeus/base/function_ref.hpp"

namespace coeus::cuda {

/// Which of so many candidates, the one that is expected to be best first, is fastest. `seconds` runs one and
/// says how long that took, infinity where it cannot be run. Each has a turn that does not count and then a
/// few, side by side with the others; its best counts. An earlier one is only left for a later one that takes
/// 2 % less. 0 where none runs.
int fastest(int candidates, FunctionRef<double(int)> seconds);

}  // namespace coeus::cuda
