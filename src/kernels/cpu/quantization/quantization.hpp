// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// y = the values of q. `leave_one`: without the scale if there is only one. `experts` (optional): the groups
/// of rows whose columns have scales of their own; others are not written.
void decode_all(Exec& exec, Tensor y, Tensor q, bool leave_one, const Groups& experts);

}  // namespace coeus::cpu
