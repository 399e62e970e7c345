// SPDX-License-Identifier: Apache-2.0
// How kernels find out on the device to which group a row or a tile of rows belongs (kernels/routing.hpp):
// the host does not know how many rows a group has.
#pragma once

#include "../../rows/matrix.hpp"
#include "../launch.hpp"
#include "../rows/team.hpp"

namespace coeus::cuda {

/// The first of some rows of a group, how many of the rows from there on the group has, and how many with its
/// padding. A row or tile that is in no group has none.
struct PlaceInGroup {
    int64_t group, row, count, padded;
};

/// Groups in the form that kernels take.
struct DeviceGroups {
    const int32_t *begins, *counts;
    int64_t number, multiple;

    __device__ int64_t padded(int64_t group) const {
        return (counts[group] + multiple - 1) / multiple * multiple;
    }
    __device__ PlaceInGroup place(int64_t group, int64_t first) const {
        return {group, begins[group] + first, counts[group] - first, padded(group) - first};
    }

    /// The place of a row. Its group is the last one that begins there or before. Without groups, the row is
    /// one by itself.
    __device__ PlaceInGroup of_row(int64_t row) const {
        if (begins == nullptr) return {0, row, 1, 1};
        int64_t low = 0, high = number;  // the first group that begins later is in [low, high]
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (begins[middle] <= row)
                low = middle + 1;
            else
                high = middle;
        }
        return low == 0 ? PlaceInGroup{0, row, 0, 0} : place(low - 1, row - begins[low - 1]);
    }

    /// The place of a tile if each group is divided into tiles of `tile_rows` rows. All lanes of a warp make
    /// the same call.
    __device__ PlaceInGroup of_tile(int64_t tile, int tile_rows) const {
        const int lane = int(threadIdx.x) % warp_size;
        for (int64_t first = 0; first < number; first += warp_size) {
            const int64_t group = first + lane;
            const int64_t own = group < number ? (counts[group] + tile_rows - 1) / tile_rows : 0;
            const int64_t end = warp_sum_up_to(own);
            const unsigned votes = __ballot_sync(whole_warp, tile < end);
            if (votes != 0) {
                const int found = __ffs(int(votes)) - 1;
                const int64_t before = __shfl_sync(whole_warp, end - own, found);
                return place(first + found, (tile - before) * tile_rows);
            }
            tile -= __shfl_sync(whole_warp, end, warp_size - 1);
        }
        return {0, 0, 0, 0};
    }
};

inline DeviceGroups device_groups(const Groups& groups) {
    if (!groups) return {nullptr, nullptr, 0, 1};
    require(groups.begins.count() == groups.number(), "groups have as many begins as counts");
    return {groups.begins.as<const int32_t>(), groups.counts.as<const int32_t>(), groups.number(),
            groups.multiple};
}

/// The most tiles that groups in so many rows may have. The last tile of a group lacks at most tile_rows -
/// group_rows rows.
inline int64_t most_tiles(int64_t rows, int64_t groups, int64_t tile_rows) {
    return (rows + groups * (tile_rows - group_rows)) / tile_rows;
}

}  // namespace coeus::cuda
