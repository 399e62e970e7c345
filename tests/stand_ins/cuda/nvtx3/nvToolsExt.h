// SPDX-License-Identifier: Apache-2.0
// Stand-in of NVTX's header, for tests: keeps the ranges instead of telling a profiler.
#pragma once

#include <string>
#include <vector>

int nvtxRangePushA(const char* name);
int nvtxRangePop();

namespace coeus::emulation {

/// Those that were begun since the last call, in their order, indented by those of their thread they lie in.
/// Of all threads together; of a thread they end before it does.
std::vector<std::string> take_ranges();

}  // namespace coeus::emulation
