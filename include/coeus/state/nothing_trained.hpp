// SPDX-License-Identifier: Apache-2.0
// Every parameter is frozen: what only evaluates or generates needs no room for gradients.
#pragma once

#include "coeus/state/frozen.hpp"

namespace coeus {

/// Matches every name of a parameter.
inline Frozen nothing_trained() {
    return Frozen({"."});
}

}  // namespace coeus
