// SPDX-License-Identifier: Apache-2.0
// How a GPU computes matrix products: by cuBLASLt, and those of experts by kernels of Coeus.
#pragma once

#include "coeus/device/exec.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// Which of the kept algorithms are timed again when they are first used: none; those that were timed more
/// than 30 days ago, or never; all.
enum class Recheck : uint8_t { none, old, all };

/// The kernels that compute products of experts' rows on tensor cores: mma, wgmma with copies by cp.async,
/// and wgmma with copies by TMA. All sum in the same order and give the same bits.
enum class ExpertsKernel : uint8_t { mma, wgmma, tma };
inline constexpr std::array experts_kernels = {ExpertsKernel::mma, ExpertsKernel::wgmma, ExpertsKernel::tma};
/// The name in a deck.
constexpr const char* name_of(ExpertsKernel kernel) {
    constexpr std::array names = {"mma", "wgmma", "tma"};
    return names[size_t(kernel)];
}

/// A search for the algorithms that are fastest while they hold a GPU at its power limit. The fastest ones of
/// short turns on a cool GPU are not always these.
struct SteadySearch {
    double seconds = 0.3;  ///< of a turn; before the turns of a product the GPU is heated three times as long
    bool replaces = false;  ///< also replaces a kept algorithm that another one is faster than
};

struct ProductOptions {
    /// The fastest of the algorithms that cuBLASLt suggests is found at the first use of each shape and kept
    /// in a file below this folder, by GPU and library version. Empty: the first suggestion is used, as it is
    /// if the folder cannot be written to, and for a shape that is first met while a CUDA graph is captured.
    std::string folder = {};
    /// A kept algorithm is used without a search. If it is timed again and takes 5 % longer than the first
    /// suggestion, a warning says so; it is used nevertheless.
    Recheck recheck = Recheck::none;
    /// Search so at the first use of each shape, also of kept ones. Nothing is kept before keep_searched().
    std::optional<SteadySearch> steady = {};
    int sm_margin = 0;        ///< multiprocessors that products leave free; fewer than the GPU has
    bool allow_tf32 = false;  ///< operands in float32 are rounded to TF32, for tensor cores
    /// Computes products of experts' rows; wgmma and tma also compute those with few rows for each group,
    /// which mma would compute otherwise, as its tiles are smaller. None: tma on Hopper, where it was the
    /// fastest one for all sizes measured (doc/performance.md); mma on other GPUs. If the kernel cannot run,
    /// a warning gives the reason and says which one is used.
    std::optional<ExpertsKernel> experts = {};
};
/// Sets the options of this Exec, which must not have run a product yet. Does nothing on the CPU.
void set_product_options(Exec& exec, const ProductOptions& options);

/// How fast an algorithm is while the GPU does nothing else for long.
struct SteadySpeed {
    double seconds = 0;  ///< of one product
    double watts = 0;    ///< 0: the driver does not tell
    int megahertz = 0;   ///< of the multiprocessors; 0: the driver does not tell
};

/// What a steady search found for a product.
struct SearchedProduct {
    enum class End : uint8_t { kept, replaced, had_been_kept, cannot_be_kept, not_kept };
    std::string problem;         ///< as `coeus info --products` names it
    double operations = 0;       ///< floating-point operations of one product
    int algorithms = 0;          ///< how many were compared
    double shortest_turn = 0;    ///< seconds of one product of the algorithm that is fastest in short turns
    SteadySpeed of_short_turns;  ///< the same algorithm's
    SteadySpeed best;
    std::optional<SteadySpeed> kept_before;  ///< of the algorithm that was kept before the search
    End end = End::not_kept;
};
/// Those of this Exec so far, in the order of their first use. Empty without ProductOptions::steady.
std::vector<SearchedProduct> searched_products(Exec& exec);
/// Keeps what the search found for this problem. LogicError if the Exec has not searched for it.
SearchedProduct keep_searched(Exec& exec, const std::string& problem);

}  // namespace coeus
