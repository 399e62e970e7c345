// SPDX-License-Identifier: Apache-2.0
// Products of rows that are grouped by expert: what their kernels have in common. A block computes a tile of
// the result. It finds its group on the device, and returns at once if the group has fewer tiles. A sum of
// products has an element of the left and one of the right operand for each index of its depth. An operand is
// `deep` if the depth runs along its rows in memory, otherwise across them:
//   d = a b^T       a and b are deep
//   d = a b         a is deep
//   d[g] += a^T b   neither is; the depth is that of the group's rows (also d[g] = a^T b)
#pragma once

#include "../ptx/mma.hpp"
#include "groups.hpp"

namespace coeus::cuda {

/// The operands. T: of a and b; O: of d.
template <class T, class O>
struct GroupedProduct {
    Rows<O> d;
    Rows<const T> a, b;
    DeviceGroups groups;
    int64_t rows;     ///< of a group's matrix in d, if a is not deep
    int64_t columns;  ///< of d
    int64_t depth;    ///< if a is deep
    bool accumulate;  ///< the products are added to d
};

/// A block's tile of d, and the operands from its first row, column and depth on. Rows from `rows` to
/// `padded` are set to zero.
template <class T, class O>
struct Work {
    O* d;
    const T *left, *right;
    int64_t rows, padded, columns, depth;
    int64_t first_row;     ///< in d
    int64_t first_column;  ///< among the columns of all groups, of which each has those of d
    int64_t group, first;  ///< the group, and the row of a where left begins
    int64_t row, column;   ///< where the tile begins in the group's matrix; row 0 if a is deep
};

/// All threads of a block call this. Tiles with the same rows are adjacent, so that blocks that run at the
/// same time share the operands of a group.
template <bool left_deep, bool right_deep, class T, class O>
__device__ Work<T, O> work_of(const GroupedProduct<T, O>& p, int tile_rows, int tile_columns) {
    const int64_t across = (p.columns + tile_columns - 1) / tile_columns;
    const int64_t tile = blockIdx.x / across, column = blockIdx.x % across * tile_columns;
    if constexpr (left_deep) {
        const PlaceInGroup at = p.groups.of_tile(tile, tile_rows);
        const T* const matrix = p.b[at.group * (right_deep ? p.columns : p.depth)];
        return {p.d[at.row] + column,
                p.a[at.row],
                matrix + (right_deep ? column * p.b.ld : column),
                at.count,
                at.padded,
                p.columns - column,
                p.depth,
                at.row,
                at.group * p.columns + column,
                at.group,
                at.row,
                0,
                column};
    } else {
        const int64_t down = (p.rows + tile_rows - 1) / tile_rows;
        const int64_t group = tile / down, row = tile % down * tile_rows;
        const PlaceInGroup at = p.groups.place(group, 0);
        const int64_t rows = at.count > 0 || !p.accumulate ? p.rows - row : 0;
        return {p.d[group * p.rows + row] + column,
                p.a[at.row] + row,
                p.b[at.row] + column,
                rows,
                rows,
                p.columns - column,
                at.count,
                group * p.rows + row,
                group * p.columns + column,
                group,
                at.row,
                row,
                column};
    }
}

/// The columns of a tile of the result on tensor cores, of which a warp has a half, and the depth of the
/// tiles of operands.
constexpr int product_columns = 128, product_depth = 64;
constexpr int warp_columns = product_columns / 2, column_tiles = warp_columns / 8;

/// A tile of an operand with `count` rows (of the left one) or columns (of the right one), in shared memory.
/// It is stored as it is in memory: [count][depth] if deep, else [depth][count].
template <class T, bool deep, int count>
struct OperandTile {
    static constexpr bool is_deep = deep;
    static constexpr int piece_size = 16 / int(sizeof(T));  ///< elements that are copied together
    static constexpr int rows = deep ? count : product_depth, width = deep ? product_depth : count,
                         pitch = tile_pitch<T>(width), elements = rows * pitch;

    /// Starts to copy it by all threads of a block, with zeros beyond what the operand has.
    template <int threads>
    __device__ static void start(T* tile, const T* from, int64_t ld, int64_t count_left, int64_t depth_left) {
        constexpr int pieces = width / piece_size;
        static_assert(rows * pieces % threads == 0);
        const int64_t rows_left = deep ? count_left : depth_left, width_left = deep ? depth_left : count_left;
        COEUS_NO_UNROLL
        for (int i = 0; i < rows * pieces / threads; ++i) {
            const int at = int(threadIdx.x) + i * threads, line = at / pieces,
                      column = at % pieces * piece_size;
            // eight threads write at once: two rows of four pieces are in different banks if four rows apart
            const int row = pieces == 4 ? line / 8 * 8 + line % 2 * 4 + line % 8 / 2 : line;
            const bool is_there = row < rows_left && column < width_left;
            copy_async<16>(tile + row * pitch + column, is_there ? from + row * ld + column : from,
                           !is_there);
        }
    }
};

/// Stores a warp's sums of 16 rows from `first_row` on, or adds them.
template <int columns, class O>
__device__ void put_sums(const Work<bf16, O>& w, int64_t ld, int first_row, int first_column,
                         const Sums (&sums)[columns], bool accumulate) {
    const Lane lane;
    COEUS_UNROLL
    for (int half = 0; half < 2; ++half) {
        const int row = first_row + half * 8 + lane.row;
        if (row >= w.padded) continue;
        COEUS_UNROLL
        for (int c = 0; c < columns; ++c) {
            const int column = first_column + c * 8 + lane.column;
            const float* const pair = sums[c].values + 2 * half;
            if (column < w.columns)
                put_pair(w.d + row * ld + column, row < w.rows ? pair[0] : 0.0f,
                         row < w.rows ? pair[1] : 0.0f, accumulate);
        }
    }
}

/// Tiles of so many rows and columns in all of d.
template <bool left_deep, class T, class O>
unsigned tiles(const GroupedProduct<T, O>& p, int64_t buffer_rows, int64_t tile_rows, int64_t tile_columns) {
    const int64_t groups = p.groups.number, down = left_deep ? most_tiles(buffer_rows, groups, tile_rows)
                                                             : groups * div_ceil(p.rows, tile_rows);
    return blocks_for(down * div_ceil(p.columns, tile_columns));
}

/// True if tall tiles do not pay: they read the operands less often, but more of their rows are beyond the
/// end of a group.
template <bool left_deep, class T, class O>
bool has_few_rows(const GroupedProduct<T, O>& p, int64_t buffer_rows) {
    constexpr int64_t few = 256;
    return (left_deep ? buffer_rows / p.groups.number : p.rows) < few;
}

}  // namespace coeus::cuda
