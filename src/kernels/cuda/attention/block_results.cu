// SPDX-License-Identifier: Apache-2.0
#include "../../rows/matrix.hpp"
#include "../launch.hpp"
#include "../ptx/mma.hpp"
#include "../rows/team.hpp"
#include "attention_tiles.hpp"
#include "block_results.hpp"

#include <cmath>
#include <limits>

namespace coeus::cuda {

namespace {

constexpr int most_blocks = int(ScoreBlocks::most);

/// The row of a sequence among those of a block; null if the block does not have it.
__device__ inline const bf16* row_of(const BlockRows& block, int64_t sequence, int64_t row, int64_t width) {
    const bool is_there = row >= block.first && row < block.first + block.count;
    return is_there ? block.data + (sequence * block.count + row - block.first) * width : nullptr;
}

/// One warp for each token and head. With l = the log of the sum of e^lse: out is the sum of e^(lse - l)
/// times the out of each block (Liu et al. 2023, Ring Attention).
template <class O>
__global__ void merge_blocks_kernel(Rows<O> out, float* lse, BlockSum outs, BlockStatistics statistics,
                                    AttentionShape s, bool merge) {
    constexpr float none = -std::numeric_limits<float>::infinity();
    constexpr int size = pack_count<O, bf16>();
    const int64_t pair = int64_t(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
    const int64_t tokens = s.batch * s.sequence, d = s.head_dim;
    if (pair >= tokens * s.heads) return;
    const int64_t t = pair / s.heads, head = pair % s.heads, sequence = t / s.sequence, row = t % s.sequence;
    const int lane = int(threadIdx.x) % warp_size;
    float& own_lse = lse[head * tokens + t];
    const float own = merge ? own_lse : none;
    const bf16* from[most_blocks];
    float weights[most_blocks], largest = own;
    bool is_seen = false;
    COEUS_UNROLL
    for (int i = 0; i < most_blocks; ++i) {
        const BlockRows& block = outs.of[i];
        from[i] = row_of(block, sequence, row, s.heads * d);
        weights[i] = none;
        if (!from[i]) continue;
        is_seen = true;
        weights[i] = statistics.of[i][(head * s.batch + sequence) * block.count + row - block.first];
        largest = weights[i] > largest ? weights[i] : largest;
    }
    if (!is_seen && merge) return;
    float sum = is_seen ? std::exp(own - largest) : 0;
    COEUS_UNROLL
    for (int i = 0; i < most_blocks; ++i)
        if (from[i]) sum += std::exp(weights[i] - largest);
    const float all = is_seen ? largest + std::log(sum) : none, keep = merge ? std::exp(own - all) : 0;
    COEUS_UNROLL
    for (int i = 0; i < most_blocks; ++i)
        if (from[i]) weights[i] = std::exp(weights[i] - all);
    O* const to = out[t] + head * d;
    for (int64_t j = lane * size; j < d; j += warp_size * size) {
        float sums[size] = {};
        if (merge) {
            const Pack<O, size> before = load_pack<size>(to + j);
            COEUS_UNROLL
            for (int e = 0; e < size; ++e) sums[e] = keep * load(before.values[e]);
        }
        COEUS_UNROLL
        for (int i = 0; i < most_blocks; ++i) {
            if (!from[i]) continue;
            const Pack<bf16, size> values = load_pack<size>(from[i] + head * d + j);
            COEUS_UNROLL
            for (int e = 0; e < size; ++e) sums[e] += weights[i] * load(values.values[e]);
        }
        Pack<O, size> result;
        COEUS_UNROLL
        for (int e = 0; e < size; ++e) result.values[e] = store<O>(sums[e]);
        store_pack(to + j, result);
    }
    __syncwarp();
    if (lane == 0) own_lse = all;
}

/// `size` elements of a row. `start` is what the sum begins with: -0 keeps the bits of a single summand.
template <int size, class O>
__device__ void sum_pack(O* to, const bf16* const (&from)[most_blocks], int64_t j, float start,
                         bool accumulate) {
    float sums[size];
    COEUS_UNROLL
    for (float& sum : sums) sum = start;
    const auto add = [&](const auto& pack) {
        COEUS_UNROLL
        for (int e = 0; e < size; ++e) sums[e] += load(pack.values[e]);
    };
    if (accumulate) add(load_pack<size>(to + j));
    COEUS_UNROLL
    for (int i = 0; i < most_blocks; ++i)
        if (from[i]) add(load_pack<size>(from[i] + j));
    Pack<O, size> result;
    COEUS_UNROLL
    for (int e = 0; e < size; ++e) result.values[e] = store<O>(sums[e]);
    store_pack(to + j, result);
}

/// One block of threads for each row.
template <class O>
__global__ void sum_blocks_kernel(Rows<O> to, BlockSum blocks, int64_t rows, int64_t width, bool accumulate) {
    constexpr int size = pack_count<O, bf16>();
    const int64_t sequence = blockIdx.x / rows, row = blockIdx.x % rows;
    const bf16* from[most_blocks];
    bool is_there = false;
    COEUS_UNROLL
    for (int i = 0; i < most_blocks; ++i) {
        from[i] = row_of(blocks.of[i], sequence, row, width);
        is_there = is_there || from[i];
    }
    if (!is_there && accumulate) return;
    const float start = is_there ? -0.0f : 0.0f;
    O* const row_to = to[blockIdx.x];
    const int64_t packed = is_aligned<size>(row_to) ? width / size * size : 0;
    for (int64_t j = int64_t(threadIdx.x) * size; j < packed; j += int64_t(blockDim.x) * size)
        sum_pack<size>(row_to, from, j, start, accumulate);
    for (int64_t j = packed + threadIdx.x; j < width; j += blockDim.x)
        sum_pack<1>(row_to, from, j, start, accumulate);
}

}  // namespace

void merge_blocks(Exec& exec, Tensor out, Tensor lse, const BlockSum& outs, const BlockStatistics& statistics,
                  const AttentionShape& s, bool merge) {
    constexpr int threads = 128;
    dispatch_out<bf16>(out.dtype, [&]<class O>(O) {
        launch(exec, "merge_blocks",
               {blocks_for(div_ceil(out.rows() * s.heads, threads / warp_size)), threads},
               merge_blocks_kernel<O>, rows_of<O>(out), lse.as<float>(), outs, statistics, s, merge);
    });
}

void sum_blocks(Exec& exec, Tensor to, const BlockSum& blocks, int64_t rows, bool accumulate) {
    dispatch_out<bf16>(to.dtype, [&]<class O>(O) {
        launch(exec, "sum_blocks",
               {blocks_for(to.rows()), threads_for(div_ceil(to.cols(), pack_count<O, bf16>()))},
               sum_blocks_kernel<O>, rows_of<O>(to), blocks, rows, to.cols(), accumulate);
    });
}

}  // namespace coeus::cuda
