// SPDX-License-Identifier: Apache-2.0
// Which GPU of a host each of its ranks should use.
#pragma once

#include <string>
#include <vector>

namespace coeus {

/// The number of the GPU for each rank of a host. `bound_to`: for each rank, the processors to which it is
/// bound ("0-7"). `near_to`: for each GPU, the processors near it; at least one GPU. Rank r gets GPU r,
/// modulo their number, except that ranks swap if more of them then are near their GPU (share_processors()).
/// Each GPU gets as many ranks as without swaps. All ranks of a host that pass the same lists get the same
/// answer.
std::vector<int> nearest_gpus(const std::vector<std::string>& bound_to,
                              const std::vector<std::string>& near_to);

}  // namespace coeus
