// SPDX-License-Identifier: Apache-2.0
// The global norm of the gradients, and the clipping factor.
#pragma once

#include "coeus/comm/communicator.hpp"
#include "coeus/state/parameters.hpp"

namespace coeus {

/// Computes the norm of the gradients (which are already summed over the data-parallel ranks), the clipping
/// factor and the refusals, and writes them to `scalars`. max_norm 0: no clipping. `owners` are ranks that
/// together own every parameter exactly once.
void measure_norm(Exec& exec, const Kernels& kernels, const Parameters& parameters, StepScalars& scalars,
                  double max_norm, const Communicator& owners = alone());

}  // namespace coeus
