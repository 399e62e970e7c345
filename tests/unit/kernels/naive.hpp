// SPDX-License-Identifier: Apache-2.0
// The kernels by their definitions, in double, one element after the other. cpu_kernels() is compared with
// them.
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::test {

/// f64 tensors only; sum, sum_of_squares and finish_norm are left out.
const Kernels& naive_kernels();

/// The same table with the kernels of mixtures of experts, with those of 8-bit floats, and with those of
/// image transformers.
Kernels with_experts(Kernels table);
Kernels with_quantization(Kernels table);
Kernels with_modulation(Kernels table);

}  // namespace coeus::test
