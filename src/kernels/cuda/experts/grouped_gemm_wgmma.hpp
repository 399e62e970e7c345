// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert, by Hopper's wgmma.
#pragma once

#include "grouped_product.hpp"

#include <string>

namespace coeus::cuda {

/// True if the GPU has wgmma: compute capability 9.0.
bool has_wgmma(const Device& gpu);
/// Why these kernels cannot run: the GPU is not of compute capability 9.0, or the program does not have them.
/// "" if they can.
std::string why_no_wgmma(const Device& gpu);

/// Computes a product whose operands fit the tensor cores. `buffer_rows`: of a and its buffer, as in tiles().
template <bool left_deep, bool right_deep, class O>
void multiply_by_wgmma(Exec& exec, const GroupedProduct<bf16, O>& p, int64_t buffer_rows);

/// The same sums, with copies by TMA. `a` and `b`: the operands, which have rows. Needs has_tensor_maps().
template <bool left_deep, bool right_deep, class O>
void multiply_by_tma(Exec& exec, const GroupedProduct<bf16, O>& p, const Tensor& a, const Tensor& b);

}  // namespace coeus::cuda
