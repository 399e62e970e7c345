// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/held_block.hpp"

#include "coeus/state/storage.hpp"

namespace coeus {

std::vector<HeldBlock> blocks_of(const Storage& storage, const Param& param, Tensor owned) {
    std::vector<HeldBlock> blocks;
    if (!owned) return blocks;
    for (const OwnedRun& run : storage.runs())
        if (run.param == &param)
            blocks.push_back({Storage::rows_of(run, owned), run.first_row, run.first_col});
    return blocks;
}

}  // namespace coeus
