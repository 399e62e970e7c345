// SPDX-License-Identifier: Apache-2.0
// Whether weights are finite.
#pragma once

#include "coeus/device/tensor.hpp"

namespace coeus {

/// True if an element of these rows, which are on the host, is infinite or NaN.
bool any_not_finite(Tensor rows);

}  // namespace coeus
