// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix, for gradients that all tokens share. Each block sums some rows; further
// kernels add the blocks' sums in order. So there are no atomics.
#pragma once

#include "../launch.hpp"
#include "../workspace.hpp"
#include "team.hpp"

namespace coeus::cuda {

using workspace::partial_group;

/// Adds the rows of a group to its first row.
template <class A>
__global__ void add_groups_kernel(A* partial, int64_t rows, int64_t width) {
    const int64_t begin = int64_t(blockIdx.y) * partial_group, count = rows - begin;
    A* const group = partial + begin * width;
    grid_team().each(width, [=](int64_t j) {
        A total = group[j];
        for (int64_t row = 1; row < partial_group && row < count; ++row) total += group[row * width + j];
        group[j] = total;
    });
}

/// out[j] += sum of partial[row][j] over the rows 0, step, 2 step.. in order.
template <class A>
__global__ void add_partial_kernel(A* out, const A* partial, int64_t rows, int64_t step, int64_t width) {
    grid_team().each(width, [=](int64_t j) {
        A total = 0;
        for (int64_t row = 0; row < rows; row += step) total += partial[row * width + j];
        out[j] += total;
    });
}

/// Calls launch_sums(partial, blocks): a launch in which block b writes the sums of its `block` rows, of
/// `width`, to partial[b]. They are then added to `out`. Needs the workspace of workspace::column_sums. If
/// `out` is absent, `partial` is null.
template <class A, class Launch>
void add_column_sums(Exec& exec, Tensor out, int64_t rows, int64_t width, Launch&& launch_sums,
                     int64_t block = workspace::column_block) {
    const Scope scope(exec.workspace);
    const int64_t blocks = div_ceil(rows, block);
    A* partial = out ? exec.workspace.alloc(out.dtype, {blocks, width}).template as<A>() : nullptr;
    launch_sums(partial, blocks);
    if (!partial) return;
    const unsigned columns = blocks_for(div_ceil(width, 256));
    const bool two_levels = workspace::adds_in_two_levels(rows, block);
    if (two_levels)
        launch(exec, "add_groups", {dim3(columns, unsigned(div_ceil(blocks, partial_group)))},
               add_groups_kernel<A>, partial, blocks, width);
    launch(exec, "add_partial", {columns}, add_partial_kernel<A>, out.template as<A>(), partial, blocks,
           two_levels ? partial_group : 1, width);
}

}  // namespace coeus::cuda
