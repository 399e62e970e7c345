// SPDX-License-Identifier: Apache-2.0
// Attention, backward, for any head width and either type (attention_mma_backward.cu uses tensor
// cores). Scores are recomputed twice: by blocks for a tile of keys, which sum dk and dv over the queries of
// all heads that share these keys, and by blocks for a tile of queries, which sum dq over the keys. There are
// no atomics. With P = softmax(scale q k^T) and delta = rowsum(dout out) (Dao et al. 2022, FlashAttention,
// algorithm 4):
//   dv = P^T dout,   dS = P (dout v^T - delta) scale,   dk = dS^T q,   dq = dS k
#include "../cuda.hpp"
#include "attention_cudnn.hpp"
#include "attention_mma.hpp"
#include "attention_wgmma.hpp"

#include <cmath>

namespace coeus::cuda {

namespace {

/// delta[H, T]: one warp for each token and head.
template <class T>
__global__ void delta_kernel(float* delta, Heads<const T> dout, Heads<const T> out, AttentionShape s) {
    const WarpTeam team;
    const int64_t pair = int64_t(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
    const int64_t tokens = s.batch * s.sequence;
    if (pair >= tokens * s.heads) return;
    const int64_t t = pair / s.heads, head = pair % s.heads;
    const float sum = team.template sum<float>(
        s.value_width(), [](float x, float y) { return x * y; },
        dout.data + t * dout.ld + head * s.value_width(), out.data + t * out.ld + head * s.value_width());
    if (team.first()) delta[head * tokens + t] = sum;
}

/// Statistics of a query, and the keys that it sees.
struct QueryRow {
    float lse, delta;
    SeenKeys seen;
};
__device__ inline QueryRow query_row(const Statistics& statistics, const AttentionShape& s, int64_t sequence,
                                     int64_t head, int64_t query) {
    if (query >= s.sequence) return {0, 0, {s.keys().count, 0}};
    const int64_t i = (head * s.batch + sequence) * s.sequence + query;
    return {statistics.lse[i], statistics.delta[i], seen_keys(s, statistics.documents.of(sequence), query)};
}

/// P and dS of one query and key.
struct Weight {
    float p, ds;
};
__device__ inline Weight weight_of(const QueryRow& query, int64_t key, const float* q, const float* k,
                                   const float* dout, const float* v, const AttentionShape& s) {
    if (key < query.seen.start || key >= query.seen.stop) return {0, 0};
    const float p = exp2f(float(log2_e) * (float(s.scale) * dot(q, k, s.head_dim) - query.lse));
    return {p, p * (dot(dout, v, s.value_width()) - query.delta) * float(s.scale)};
}

template <class O, int columns>
__device__ void put_row(O* to, const float (&sums)[columns], int64_t cols, int lane, bool accumulate) {
    for (int i = 0; i < columns; ++i) {
        const int64_t column = lane + int64_t(i) * row_threads;
        if (column < cols) to[column] = store<O>(accumulate ? load(to[column]) + sums[i] : sums[i]);
    }
}

template <class O, class T, int columns>
__global__ void key_gradients_kernel(Heads<O> dk, Heads<O> dv, Heads<const T> dout, Statistics statistics,
                                     Heads<const T> q, Heads<const T> k, Heads<const T> v, AttentionShape s,
                                     bool accumulate) {
    constexpr int side = tile_side(columns);
    const int64_t kv_head = block_head(), sequence = block_sequence(), d = s.head_dim, e = s.value_width(),
                  width = tile_width(s);
    const TileSizes sizes(columns, s);
    const int64_t first = int64_t(part_from_first()) * side, keys = s.keys().count,
                  group = s.heads / s.kv_heads;
    float* const key_tile = reinterpret_cast<float*>(shared_memory());
    float* const values = key_tile + sizes.rows;
    float* const queries = values + sizes.rows;
    float* const douts = queries + sizes.rows;
    const int row = int(threadIdx.x) / row_threads, lane = int(threadIdx.x) % row_threads;
    float* const p_row = douts + sizes.rows + row * side;
    float* const ds_row = p_row + sizes.square;

    load_tile<T, columns>(key_tile, width, k.of(sequence, kv_head, d), first, keys, d);
    load_tile<T, columns>(values, width, v.of(sequence, kv_head, e), first, keys, e);
    float dk_sums[columns] = {}, dv_sums[columns] = {};
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (int64_t begin = 0; begin < s.sequence; begin += side) {
            // each lane checks one query of the tile, so all warps get the same answer
            const SeenKeys seen = query_row(statistics, s, sequence, head, begin + threadIdx.x % side).seen;
            if (__ballot_sync(whole_warp, seen.start < first + side && seen.stop > first) == 0) continue;
            __syncthreads();
            load_tile<T, columns>(queries, width, q.of(sequence, head, d), begin, s.sequence, d);
            load_tile<T, columns>(douts, width, dout.of(sequence, head, e), begin, s.sequence, e);
            __syncthreads();
            for (int i = 0; i < scores_per_thread(columns); ++i) {
                const int c = lane + i * row_threads;
                const QueryRow query = query_row(statistics, s, sequence, head, begin + c);
                const Weight w = weight_of(query, first + row, queries + c * width, key_tile + row * width,
                                           douts + c * width, values + row * width, s);
                p_row[c] = w.p;
                ds_row[c] = w.ds;
            }
            __syncwarp();
            add_weighted_rows(dv_sums, p_row, douts, width, e, lane);
            add_weighted_rows(dk_sums, ds_row, queries, width, d, lane);
            __syncwarp();
        }
    if (first + row >= keys) return;
    put_row(dk.of(sequence, kv_head, d).row(first + row), dk_sums, d, lane, accumulate);
    put_row(dv.of(sequence, kv_head, e).row(first + row), dv_sums, e, lane, accumulate);
}

template <class O, class T, int columns>
__global__ void query_gradients_kernel(Heads<O> dq, Heads<const T> dout, Statistics statistics,
                                       Heads<const T> q, Heads<const T> k, Heads<const T> v, AttentionShape s,
                                       bool accumulate) {
    constexpr int side = tile_side(columns);
    const int64_t head = block_head(), sequence = block_sequence(), d = s.head_dim, e = s.value_width(),
                  width = tile_width(s);
    const TileSizes sizes(columns, s);
    const int64_t first = int64_t(part_from_last()) * side, keys = s.keys().count;
    const int64_t kv_head = head / (s.heads / s.kv_heads);
    float* const queries = reinterpret_cast<float*>(shared_memory());
    float* const douts = queries + sizes.rows;
    float* const key_tile = douts + sizes.rows;
    float* const values = key_tile + sizes.rows;
    const int row = int(threadIdx.x) / row_threads, lane = int(threadIdx.x) % row_threads;
    float* const ds_row = values + sizes.rows + row * side;

    load_tile<T, columns>(queries, width, q.of(sequence, head, d), first, s.sequence, d);
    load_tile<T, columns>(douts, width, dout.of(sequence, head, e), first, s.sequence, e);
    const QueryRow own = query_row(statistics, s, sequence, head, first + row);
    const int64_t last_query = first + side < s.sequence ? first + side - 1 : s.sequence - 1;
    const int32_t* const documents = statistics.documents.of(sequence);
    const int64_t begin = seen_keys(s, documents, first).start / side * side;
    const int64_t end = seen_keys(s, documents, last_query).stop;
    float sums[columns] = {};
    for (int64_t key = begin; key < end; key += side) {
        __syncthreads();
        load_tile<T, columns>(key_tile, width, k.of(sequence, kv_head, d), key, keys, d);
        load_tile<T, columns>(values, width, v.of(sequence, kv_head, e), key, keys, e);
        __syncthreads();
        for (int i = 0; i < scores_per_thread(columns); ++i) {
            const int c = lane + i * row_threads;
            ds_row[c] = weight_of(own, key + c, queries + row * width, key_tile + c * width,
                                  douts + row * width, values + c * width, s)
                            .ds;
        }
        __syncwarp();
        add_weighted_rows(sums, ds_row, key_tile, width, d, lane);
        __syncwarp();
    }
    if (first + row < s.sequence)
        put_row(dq.of(sequence, head, d).row(first + row), sums, d, lane, accumulate);
}

template <class Q, class K, class T>
void all_gradients(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, const Statistics& statistics,
                   Tensor q, Tensor k, Tensor v, const AttentionShape& s, bool add_to_dq) {
    dispatch_columns(s, [&]<int columns>(std::integral_constant<int, columns>) {
        const auto grid = [&](int64_t rows, int64_t heads, int squares) {
            return Grid{attention_blocks(rows, tile_side(columns), heads, s), attention_threads(columns),
                        tiles_bytes(columns, s, 4, squares)};
        };
        launch(exec, "attention_query_gradients", grid(s.sequence, s.heads, 1),
               query_gradients_kernel<Q, T, columns>, heads_of<Q>(dq, s), heads_of<const T>(dout, s),
               statistics, heads_of<const T>(q, s), heads_of<const T>(k, s), heads_of<const T>(v, s), s,
               add_to_dq);
        launch(exec, "attention_key_gradients", grid(s.keys().count, s.kv_heads, 2),
               key_gradients_kernel<K, T, columns>, heads_of<K>(dk, s), heads_of<K>(dv, s),
               heads_of<const T>(dout, s), statistics, heads_of<const T>(q, s), heads_of<const T>(k, s),
               heads_of<const T>(v, s), s, false);
    });
}

}  // namespace

void Cuda::attention_backward(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out,
                              Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                              const AttentionShape& shape, bool add_to_dq) {
    check_attention(q, k, v, lse, document_start, shape);
    require(dk.dtype == dv.dtype, "attention: gradients of keys and values differ in type");
    if (attention_backward_cudnn(exec, dq, dk, dv, dout, out, lse, q, k, v, document_start, shape, add_to_dq))
        return;
    const AttentionShape s = causal_form(shape);
    const Scope scope(exec.workspace);
    const int64_t pairs = s.batch * s.sequence * s.heads;
    const Tensor delta = exec.workspace.alloc(Dtype::f32, {s.heads, s.batch * s.sequence});
    // dq may be the memory of q, which the gradients of the keys still need, so it is computed in the
    // workspace
    const Tensor waiting = add_to_dq ? dq : exec.workspace.alloc(dq.dtype, {dq.rows(), dq.cols()});
    constexpr int threads = 128;
    dispatch(q.dtype, [&]<class T>(T) {
        launch(exec, "attention_delta", {blocks_for(div_ceil(pairs, threads / warp_size)), threads},
               delta_kernel<T>, delta.as<float>(), heads_of<const T>(dout, s), heads_of<const T>(out, s), s);
        const Statistics statistics = {lse.as<const float>(), delta.as<const float>(),
                                       documents_of(document_start, s)};
        if (tensor_cores_fit(q.dtype, s, {waiting, dk, dv, dout, q, k, v}))
            return (wgmma_computes(exec, s) ? attention_backward_wgmma : attention_backward_mma)(
                exec, waiting, dk, dv, dout, statistics, q, k, v, s, add_to_dq);
        dispatch_out<T>(dq.dtype, [&]<class Q>(Q) {
            dispatch_out<T>(dk.dtype, [&]<class K>(K) {
                all_gradients<Q, K, T>(exec, waiting, dk, dv, dout, statistics, q, k, v, s, add_to_dq);
            });
        });
    });
    if (!add_to_dq) cast(exec, dq, waiting);
}

}  // namespace coeus::cuda
