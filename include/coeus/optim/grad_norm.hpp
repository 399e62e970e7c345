// SPDX-License-Identifier: Apache-2.0
// The global norm of the gradients, by which they are clipped.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

/// Norm of the gradients (already summed over the data ranks), clip coefficient, refusals. max_norm 0: no
/// clipping. `owners`: ranks that together own every parameter once.
void measure_norm(Exec& exec, const Kernels& kernels, const Parameters& parameters, StepScalars& scalars,
                  double max_norm, const Communicator& owners = alone());

}  // namespace coeus
