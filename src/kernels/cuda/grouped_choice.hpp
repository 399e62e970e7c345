// SPDX-License-Identifier: Apache-2.0
// Which kernel computes a product of experts: mma, wgmma, or wgmma with copies by TMA.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "launch.hpp"

#include <array>
#include <string>

namespace coeus::cuda {

/// A product that all kernels can compute.
struct GroupedCandidates {
    std::string problem;  ///< everything that decides which one is fastest
    Tensor d;             ///< the result
    bool is_large;        ///< tiles of wgmma are full, so that it is worth a search
    /// in the order of experts_kernels
    std::array<FunctionRef<void()>, experts_kernels.size()> kernels;
};

/// Computes the product. The first call for a problem whose result is not zero decides by which kernel, and
/// not while a graph is recorded; later ones take the same kernel, and earlier ones mma. A kernel by wgmma is
/// chosen only if the GPU has it, if its result is that of mma up to rounding, on the operands of that call,
/// and if it is at least 2 % faster than those before it in the list, by the GPU's clock. TMA also needs a
/// driver that describes matrices. The choice is kept with the algorithms of products (AlgorithmCache), so
/// that ranks and later runs take it; a kept choice of wgmma is compared with mma again, once in each
/// process, and a rank whose results differ uses mma. If nothing can be kept, mma is used, and also if no
/// choice is kept and this process lacks one of the kernels.
///
/// All of this holds if the environment variable COEUS_EXPERTS_WGMMA is "search". With 1, wgmma computes all
/// products for which its result is that of mma, without a search, and with "tma" wgmma with TMA does.
/// Otherwise mma computes all, since the others have not run on a GPU yet. If one is asked for and cannot
/// run, a warning gives the reason.
void multiply_by_choice(Exec& exec, const GroupedCandidates& candidates);

}  // namespace coeus::cuda
