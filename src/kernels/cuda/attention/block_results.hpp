// SPDX-License-Identifier: Apache-2.0
// Adds what a library computed for each block of scores (score_blocks.hpp) up to what a call of attention
// returns. Results of a block are in bfloat16 and have only the rows of its own queries or keys, sequence
// after sequence. Sums are in float32, in the order of the blocks.
#pragma once

#include "coeus/kernels/kernels.hpp"
#include "score_blocks.hpp"

namespace coeus::cuda {

/// Rows of each sequence from `first` on, in bfloat16.
struct BlockRows {
    const bf16* data = nullptr;
    int64_t first = 0, count = 0;
};
/// In the order of the blocks; those after the last block have no rows.
struct BlockSum {
    BlockRows of[ScoreBlocks::most] = {};
};
/// The statistics of the same rows: [H, batch * count].
struct BlockStatistics {
    const float* of[ScoreBlocks::most] = {};
};

/// out and lse of the blocks together, as Kernels::attention returns them or, with `merge`,
/// Kernels::merge_attention. The rows of out must begin at multiples of 16 bytes, and heads must be multiples
/// of 8 wide.
void merge_blocks(Exec& exec, Tensor out, Tensor lse, const BlockSum& outs, const BlockStatistics& statistics,
                  const AttentionShape& s, bool merge);
/// to = the sum of the blocks' rows, or to += it; `to` has `rows` rows of each sequence.
void sum_blocks(Exec& exec, Tensor to, const BlockSum& blocks, int64_t rows, bool accumulate);

}  // namespace coeus::cuda
