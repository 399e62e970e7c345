// SPDX-License-Identifier: Apache-2.0
// Attention of one query for each sequence over its cached keys and values. A block processes a sequence and
// a query head. Its warps take the rows of the cache in turn, each with a running maximum and sum, and are
// combined in order at the end.
#include "../cuda.hpp"
#include "attention_tiles.hpp"

#include <cmath>
#include <limits>

namespace coeus::cuda {

namespace {

constexpr int cached_warps = 8;

template <class T>
struct CachedOperands {
    Rows<T> out, keys, values;
    float* lse;
    Rows<const T> q, k, v;
    const int32_t *slots, *positions;
};

/// A lane has the columns lane, lane + 32, ... of a head.
template <class T, int columns>
__global__ void attention_cached_kernel(CachedOperands<T> o, AttentionShape s) {
    const int64_t head = blockIdx.x, b = blockIdx.y, d = s.head_dim, e = s.value_width(),
                  group = s.heads / s.kv_heads;
    const int64_t k_column = head / group * d, v_column = head / group * e, position = o.positions[b],
                  first = o.slots[b] * s.sequence;
    const int warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
    const auto column = [=](int i) { return lane + int64_t(i) * warp_size; };
    const T *const k = o.k[b] + k_column, *const v = o.v[b] + v_column;
    // writes the new row to the cache; this kernel reads it from k and v instead
    if (head % group == 0 && warp == 0) {
        for (int64_t j = lane; j < d; j += warp_size) o.keys[first + position][k_column + j] = k[j];
        for (int64_t j = lane; j < e; j += warp_size) o.values[first + position][v_column + j] = v[j];
    }
    float query[columns], sums[columns] = {}, sum = 0, maximum = -std::numeric_limits<float>::infinity();
    COEUS_UNROLL
    for (int i = 0; i < columns; ++i) query[i] = column(i) < d ? load(o.q[b][head * d + column(i)]) : 0.0f;
    for (int64_t p = first_key(s, nullptr, position) + warp; p <= position; p += cached_warps) {
        const T* const key = p == position ? k : o.keys[first + p] + k_column;
        const T* const value = p == position ? v : o.values[first + p] + v_column;
        float part = 0;
        COEUS_UNROLL
        for (int i = 0; i < columns; ++i)
            if (column(i) < d) part += query[i] * load(key[column(i)]);
        const float score = float(s.scale) * warp_sum(part), largest = score > maximum ? score : maximum;
        const float shrink = std::exp(maximum - largest), weight = std::exp(score - largest);
        sum = sum * shrink + weight;
        maximum = largest;
        COEUS_UNROLL
        for (int i = 0; i < columns; ++i)
            sums[i] = sums[i] * shrink + (column(i) < e ? weight * load(value[column(i)]) : 0.0f);
    }
    // [warp][maximum, sum, e sums]
    float* const joined = reinterpret_cast<float*>(shared_memory());
    float* const own = joined + warp * (2 + e);
    if (lane == 0) own[0] = maximum, own[1] = sum;
    for (int i = 0; i < columns; ++i)
        if (column(i) < e) own[2 + column(i)] = sums[i];
    __syncthreads();
    float largest = joined[0];
    for (int w = 1; w < cached_warps; ++w)
        largest = joined[w * (2 + e)] > largest ? joined[w * (2 + e)] : largest;
    float scores = 0;  // sum of exp
    for (int w = 0; w < cached_warps; ++w) {
        const float* const of_warp = joined + w * (2 + e);
        if (of_warp[1] != 0) scores += std::exp(of_warp[0] - largest) * of_warp[1];
    }
    if (threadIdx.x == 0) o.lse[head * s.batch + b] = largest + std::log(scores);
    for (int64_t j = threadIdx.x; j < e; j += blockDim.x) {
        float output = 0;
        for (int w = 0; w < cached_warps; ++w) {
            const float* const of_warp = joined + w * (2 + e);
            const float keep = of_warp[1] == 0 ? 0.0f : std::exp(of_warp[0] - largest);
            output += keep * of_warp[2 + j];
        }
        o.out[b][head * e + j] = store<T>(output / scores);
    }
}

}  // namespace

void Cuda::attention_cached(Exec& exec, Tensor out, Tensor lse, Tensor keys, Tensor values, Tensor q,
                            Tensor k, Tensor v, Tensor slots, Tensor positions, const AttentionShape& s) {
    const int64_t d = s.head_dim, e = s.value_width();
    require(s.heads % s.kv_heads == 0 && q.rows() == s.batch && q.cols() == s.heads * d &&
                out.rows() == s.batch && out.cols() == s.heads * e && lse.rows() == s.heads &&
                lse.cols() == s.batch && lse.dense() && k.rows() == s.batch && k.cols() == s.kv_heads * d &&
                v.rows() == s.batch && v.cols() == s.kv_heads * e && keys.cols() == k.cols() &&
                values.rows() == keys.rows() && values.cols() == v.cols() && slots.count() == s.batch &&
                positions.count() == s.batch,
            "attention_cached: operands do not have the shape given");
    require(s.causal, "attention_cached: full attention has no cache");
    const Grid grid = {dim3(blocks_for(s.heads), blocks_for(s.batch)), cached_warps * warp_size,
                       size_t(cached_warps * (2 + e)) * sizeof(float)};
    dispatch(q.dtype, [&]<class T>(T) {
        const CachedOperands<T> operands = {
            rows_of<T>(out),     rows_of<T>(keys),          rows_of<T>(values),
            lse.as<float>(),     rows_of<const T>(q),       rows_of<const T>(k),
            rows_of<const T>(v), slots.as<const int32_t>(), positions.as<const int32_t>()};
        const int64_t columns = widest(s);
        require(columns <= 256, "attention on CUDA: heads are at most 256 wide");
        if (columns <= 64)
            launch(exec, "attention_cached", grid, attention_cached_kernel<T, 2>, operands, s);
        else if (columns <= 128)
            launch(exec, "attention_cached", grid, attention_cached_kernel<T, 4>, operands, s);
        else
            launch(exec, "attention_cached", grid, attention_cached_kernel<T, 8>, operands, s);
    });
}

}  // namespace coeus::cuda
