// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/param.hpp"

#include <algorithm>

namespace coeus {

Extent Param::part(int tp, int tp_rank) const {
    Extent e = {.rows = rows_per_group(), .cols = shape.cols(), .groups = groups};
    const auto split = [&](int64_t& first, int64_t& count) {
        const int64_t each = together * div_ceil(div_ceil(count, together), tp), all = count;
        first = std::min(all, tp_rank * each);
        count = std::min(each, all - first);
    };
    if (shard.tp == Split::rows) split(e.first_row, e.rows);
    if (shard.tp == Split::cols) split(e.first_col, e.cols);
    return e;
}

Extent Param::part(const ShardPlace& place) const {
    require(groups % place.ep == 0, "expert-parallel ranks have equally many groups of a parameter");
    Extent e = part(place.tp, place.tp_rank);
    e.groups = groups / place.ep;
    e.first_group = place.ep_rank * e.groups;
    return e;
}

}  // namespace coeus
