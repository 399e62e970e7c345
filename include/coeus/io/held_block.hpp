// SPDX-License-Identifier: Apache-2.0
// HeldBlock: what a rank holds of an array that is whole only in a file.
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

/// What this rank owns of a parameter in one of the storage's tensors of owned rows, in the order of its
/// addresses; nothing where that tensor is absent.
std::vector<HeldBlock> blocks_of(const Storage& storage, const Param& param, Tensor owned);

}  // namespace coeus
