// SPDX-License-Identifier: Apache-2.0
// Tokens over tensor-parallel ranks (sequence parallelism, Korthikanti et al. 2022): between the layers each
// of the P ranks has the T/P rows of the residual stream that follow its number; a layer's matrices are
// divided, and see all T. The two collectives are each other's transpose.
#pragma once

#include "coeus/layers/context.hpp"

namespace coeus {

/// [T/P, D] -> [T, D] in temp; x itself where there is one rank.
Tensor gather_tokens(Ctx& c, Tensor x);
/// Sums `parts` [T, D] of all ranks; this rank's rows go to y [T/P, D]. With one rank they are the same
/// memory.
void scatter_tokens(Ctx& c, Tensor y, Tensor parts);
/// Where to put the parts of y: [T, D] in temp; y itself where there is one rank.
Tensor parts_of(Ctx& c, Tensor y);

}  // namespace coeus
