// SPDX-License-Identifier: Apache-2.0
// Rows that are grouped by expert (kernels/routing.hpp, Groups).
#pragma once

#include "coeus/kernels/kernels.hpp"

namespace coeus::cpu {

/// The rows of a group.
struct GroupRows {
    int64_t begin, count, padded;
};
inline GroupRows rows_of_group(const Groups& groups, int64_t g) {
    const int64_t count = groups.counts.as<const int32_t>()[g];
    return {groups.begins.as<const int32_t>()[g], count, round_up(count, group_rows)};
}
/// Rows up to the end of the last group, with padding.
inline int64_t used_rows(const Groups& groups) {
    const GroupRows last = rows_of_group(groups, groups.number() - 1);
    return last.begin + last.padded;
}
inline void check_groups(const Groups& groups, const Tensor& rows) {
    require(groups.begins.count() == groups.number() && used_rows(groups) <= rows.rows(),
            "the groups do not fit into the rows");
}

}  // namespace coeus::cpu
