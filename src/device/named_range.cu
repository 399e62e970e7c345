// SPDX-License-Identifier: Apache-2.0
// NVTX finds the profiler's library itself; without a profiler its calls return at once.
#include "coeus/device/named_range.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else  // a toolkit from Python packages may lack nvidia-nvtx
inline int nvtxRangePushA(const char*) {
    return 0;
}
inline int nvtxRangePop() {
    return 0;
}
#endif

namespace coeus {

void NamedRange::begin(const char* name) {
    nvtxRangePushA(name);
}

void NamedRange::end() {
    nvtxRangePop();
}

}  // namespace coeus
