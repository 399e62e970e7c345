// SPDX-License-Identifier: Apache-2.0
// HeldBlock: a block of an array that a rank holds. Only the file has the whole array.
#pragma once

#include "coeus/device/tensor.hpp"

#include <vector>

namespace coeus {

class Storage;
struct Param;

struct HeldBlock {
    Tensor local;           ///< rows [first_row, +rows) and columns [first_col, +cols) of the array
    int64_t first_row = 0;  ///< row: see Shape::rows
    int64_t first_col = 0;
};

/// The blocks of a parameter that this rank owns in `owned`, a tensor of the storage's owned rows; in the
/// order of their addresses. Empty if that tensor is null.
std::vector<HeldBlock> blocks_of(const Storage& storage, const Param& param, Tensor owned);

}  // namespace coeus
