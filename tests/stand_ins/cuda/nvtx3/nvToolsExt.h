// SPDX-License-Identifier: Apache-2.0
// Stand-in for NVTX's header, for tests: keeps the ranges instead of passing them to a profiler.
#pragma once

#include <string>
#include <vector>

int nvtxRangePushA(const char* name);
int nvtxRangePop();

namespace coeus::emulation {

/// The ranges begun since the last call, in order and on all threads together, indented by the number of
/// ranges around them on their thread. A thread's ranges end before it does.
std::vector<std::string> take_ranges();

}  // namespace coeus::emulation
