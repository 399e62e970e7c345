// SPDX-License-Identifier: Apache-2.0
// Whether mma or wgmma computes a product of experts.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "launch.hpp"

#include <string>

namespace coeus::cuda {

/// A product that both can compute.
struct GroupedCandidates {
    std::string problem;  ///< everything that decides which one is faster
    Tensor d;             ///< the result
    bool is_large;        ///< tiles of wgmma are full, so that it is worth a search
    FunctionRef<void()> by_mma, by_wgmma;
};

/// True if wgmma computes the product. The first call for a problem whose result is not zero decides, and not
/// while a graph is recorded; later ones give the same answer, and earlier ones use mma. wgmma is chosen only
/// if the GPU has it, if its result is that of mma up to rounding, on the operands of that call, and if it is
/// at least 2 % faster, by the GPU's clock. The choice is kept with the algorithms of products
/// (AlgorithmCache), so that ranks and later runs take it; a kept choice of wgmma is compared with mma again,
/// once in each process, and a rank whose results differ uses mma. If nothing can be kept, mma is used.
/// Whatever was in d stays.
///
/// All of this holds if the environment variable COEUS_EXPERTS_WGMMA is "search". With 1, wgmma computes all
/// products for which its result is that of mma, without a search. Otherwise it computes none, since it has
/// not run on a GPU yet. If it is asked for and cannot run, a warning gives the reason.
bool chooses_wgmma(Exec& exec, const GroupedCandidates& candidates);

}  // namespace coeus::cuda
