// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix, for gradients that all tokens share. They are taken over fixed blocks of
// rows, and then over the blocks in order, so that they have the same bits for any number of threads.
#pragma once

#include "../../rows/team.hpp"
#include "../cpu.hpp"
#include "../workspace.hpp"

namespace coeus::cpu {

/// Calls each(i, sums) for all rows in blocks, where `sums` (of `width`, acc) is that of the row's block, and
/// adds the sums of all blocks to `out`. If `out` is absent, `sums` is null. Needs the workspace of
/// workspace::column_sums.
template <class A, class Each>
void add_column_sums(Exec& exec, Tensor out, int64_t rows, int64_t width, Each&& each) {
    const Scope scope(exec.workspace);
    const int64_t blocks = div_ceil(rows, workspace::column_block);
    A* partial = out ? exec.workspace.alloc(out.dtype, {blocks, width}).template as<A>() : nullptr;
    parallel_blocks(exec, rows, workspace::column_block, [&](int64_t block, int64_t first, int64_t last) {
        A* sums = partial ? partial + block * width : nullptr;
        if (sums) std::fill(sums, sums + width, A(0));
        for (int64_t i = first; i < last; ++i) each(i, sums);
    });
    if (!partial) return;
    A* to = out.as<A>();
    parallel_blocks(exec, width, 1024, [&](int64_t, int64_t first, int64_t last) {
        for (int64_t block = 0; block < blocks; ++block)
            Lane().each(last - first,
                        [&](int64_t j) { to[first + j] += partial[block * width + first + j]; });
    });
}

}  // namespace coeus::cpu
