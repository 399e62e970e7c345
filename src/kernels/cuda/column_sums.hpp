// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix, for gradients that all tokens share. Each block sums some rows; a second
// kernel adds the blocks' sums in order. So there are no atomics.
#pragma once

#include "launch.hpp"
#include "team.hpp"
#include "workspace.hpp"

namespace coeus::cuda {

/// out[j] += sum over the blocks of partial[block][j], in order.
template <class A>
__global__ void add_partial_kernel(A* out, const A* partial, int64_t blocks, int64_t width) {
    grid_team().each(width, [=](int64_t j) {
        A total = 0;
        for (int64_t block = 0; block < blocks; ++block) total += partial[block * width + j];
        out[j] += total;
    });
}

/// Calls launch_sums(partial, blocks): a launch in which block b writes the sums of its `block_rows` rows, of
/// `width`, to partial[b]. They are then added to `out`. Needs the workspace of workspace::column_sums. If
/// `out` is absent, `partial` is null.
template <class A, class Launch>
void add_column_sums(Exec& exec, Tensor out, int64_t rows, int64_t width, Launch&& launch_sums) {
    const Scope scope(exec.workspace);
    const int64_t blocks = div_ceil(rows, workspace::column_block);
    A* partial = out ? exec.workspace.alloc(out.dtype, {blocks, width}).template as<A>() : nullptr;
    launch_sums(partial, blocks);
    if (partial)
        launch(exec, "add_partial", {blocks_for(div_ceil(width, 256))}, add_partial_kernel<A>,
               out.template as<A>(), partial, blocks, width);
}

}  // namespace coeus::cuda
