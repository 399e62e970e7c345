// SPDX-License-Identifier: Apache-2.0
// Attention, forward, for any head width and either type (attention_mma.cu uses tensor cores). A block
// processes a tile of queries of a head. It iterates over tiles of keys; a running maximum and sum rescale
// the output so far (Dao et al. 2022, FlashAttention, algorithm 1).
#include "../cuda.hpp"
#include "../workspace.hpp"
#include "attention_cudnn.hpp"
#include "attention_mma.hpp"

#include <cmath>
#include <limits>

namespace coeus::cuda {

namespace {

/// True for the score of a hidden key. A NaN is not hidden and propagates.
__device__ inline bool is_hidden(float score) {
    return score == -std::numeric_limits<float>::infinity();
}

template <class O, class T, int columns>
__global__ void attention_kernel(Heads<O> out, float* lse, Heads<const T> q, Heads<const T> k,
                                 Heads<const T> v, Documents documents, AttentionShape s) {
    constexpr int side = tile_side(columns);
    const int64_t head = block_head(), sequence = block_sequence(), d = s.head_dim, e = s.value_width(),
                  width = tile_width(s);
    const TileSizes sizes(columns, s);
    // the last queries see the most keys, so they begin first
    const int64_t first = int64_t(part_from_last()) * side, keys = s.keys().count;
    const int64_t kv_head = head / (s.heads / s.kv_heads);
    const HeadRows<const T> k_rows = k.of(sequence, kv_head, d), v_rows = v.of(sequence, kv_head, e);
    float* const queries = reinterpret_cast<float*>(shared_memory());
    float* const key_tile = queries + sizes.rows;
    float* const values = key_tile + sizes.rows;
    const int row = int(threadIdx.x) / row_threads, lane = int(threadIdx.x) % row_threads;
    float* const weights = values + sizes.rows + row * side;  // of this thread's row
    const int64_t query = first + row;

    load_tile<T, columns>(queries, width, q.of(sequence, head, d), first, s.sequence, d);
    const SeenKeys seen =
        query < s.sequence ? seen_keys(s, documents.of(sequence), query) : SeenKeys{keys, 0};
    // keys that some query of the tile sees: the last query sees up to the largest index, and the first keys
    // do not decrease
    const int64_t last_query = first + side < s.sequence ? first + side - 1 : s.sequence - 1;
    const int64_t begin = seen_keys(s, documents.of(sequence), first).start / side * side;
    const int64_t end = seen_keys(s, documents.of(sequence), last_query).stop;

    const float factor = float(s.scale * log2_e);
    float maximum = -std::numeric_limits<float>::infinity(), sum = 0, outputs[columns] = {};
    for (int64_t key = begin; key < end; key += side) {
        __syncthreads();
        load_tile<T, columns>(key_tile, width, k_rows, key, keys, d);
        load_tile<T, columns>(values, width, v_rows, key, keys, e);
        __syncthreads();
        float scores[scores_per_thread(columns)], largest = maximum;
        COEUS_UNROLL
        for (int i = 0; i < scores_per_thread(columns); ++i) {
            const int c = lane + i * row_threads;
            const bool hidden = key + c < seen.start || key + c >= seen.stop;
            scores[i] = hidden ? -std::numeric_limits<float>::infinity()
                               : factor * dot(queries + row * width, key_tile + c * width, d);
            largest = scores[i] > largest ? scores[i] : largest;
        }
        largest = row_largest(largest);
        const float shrink = is_hidden(largest) ? 0.0f : exp2f(maximum - largest);
        float total = 0;
        COEUS_UNROLL
        for (int i = 0; i < scores_per_thread(columns); ++i) {
            const float p = is_hidden(scores[i]) ? 0.0f : exp2f(scores[i] - largest);
            weights[lane + i * row_threads] = p;
            total += p;
        }
        sum = sum * shrink + row_sum(total);
        maximum = largest;
        __syncwarp();
        COEUS_UNROLL
        for (int i = 0; i < columns; ++i) outputs[i] *= shrink;
        add_weighted_rows(outputs, weights, values, width, e, lane);
        __syncwarp();
    }
    if (query >= s.sequence) return;
    const float inverse = sum == 0 ? 0.0f : 1 / sum;
    O* const to = out.of(sequence, head, e).row(query);
    for (int i = 0; i < columns; ++i)
        if (const int64_t column = lane + int64_t(i) * row_threads; column < e)
            to[column] = store<O>(outputs[i] * inverse);
    if (lane == 0)
        lse[(head * s.batch + sequence) * s.sequence + query] =
            sum == 0 ? -std::numeric_limits<float>::infinity() : (maximum + log2f(sum)) / float(log2_e);
}

/// One warp for each token and head. Liu et al. 2023, Ring Attention.
__global__ void merge_attention_kernel(float* out, float* lse, const float* other_out, const float* other_lse,
                                       int64_t tokens, int64_t heads, int64_t head_dim, int64_t ld,
                                       int64_t other_ld) {
    const WarpTeam team;
    const int64_t pair = int64_t(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
    if (pair >= tokens * heads) return;
    const int64_t t = pair / heads, head = pair % heads;
    const float own = lse[head * tokens + t], other = other_lse[head * tokens + t];
    const float largest = own > other ? own : other;
    if (is_hidden(largest)) return;  // neither query attended to a key
    const float sum = largest + std::log(std::exp(own - largest) + std::exp(other - largest));
    const float keep = std::exp(own - sum), take = std::exp(other - sum);
    float* const to = out + t * ld + head * head_dim;
    team.map(
        head_dim, to, [=](float x, float y) { return keep * x + take * y; }, to,
        other_out + t * other_ld + head * head_dim);
    __syncwarp();
    if (team.first()) lse[head * tokens + t] = sum;
}

void own_attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                   const AttentionShape& shape) {
    const AttentionShape s = causal_form(shape);
    if (tensor_cores_fit(q.dtype, s, {out, q, k, v}))
        return attention_mma(exec, out, lse, q, k, v, document_start, s);
    dispatch(q.dtype, [&]<class T>(T) {
        dispatch_out<T>(out.dtype, [&]<class O>(O) {
            dispatch_columns(s, [&]<int columns>(std::integral_constant<int, columns>) {
                const Grid grid = {attention_blocks(s.sequence, tile_side(columns), s.heads, s),
                                   attention_threads(columns), tiles_bytes(columns, s, 3, 1)};
                launch(exec, "attention", grid, attention_kernel<O, T, columns>, heads_of<O>(out, s),
                       lse.as<float>(), heads_of<const T>(q, s), heads_of<const T>(k, s),
                       heads_of<const T>(v, s), documents_of(document_start, s), s);
            });
        });
    });
}

}  // namespace

void Cuda::attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                     const AttentionShape& s) {
    check_attention(q, k, v, lse, document_start, s);
    require(out.rows() == q.rows() && out.cols() == s.heads * s.value_width(),
            "attention: the output does not have the shape given");
    if (attention_cudnn(exec, out, lse, q, k, v, document_start, s, false)) return;
    own_attention(exec, out, lse, q, k, v, document_start, s);
}

void Cuda::merge_attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                           Tensor document_start, const AttentionShape& s) {
    check_attention(q, k, v, lse, document_start, s);
    require(out.rows() == q.rows() && out.cols() == s.heads * s.value_width() && out.dtype == Dtype::f32,
            "attention: what is merged does not have the shape given or is not in float32");
    if (attention_cudnn(exec, out, lse, q, k, v, document_start, s, true)) return;
    const Scope scope(exec.workspace);
    const Tensor other = exec.workspace.alloc(Dtype::f32, {out.rows(), out.cols()}),
                 other_lse = exec.workspace.alloc(Dtype::f32, lse.shape);
    own_attention(exec, other, other_lse, q, k, v, document_start, s);
    constexpr int threads = 128;
    launch(exec, "merge_attention",
           {blocks_for(div_ceil(out.rows() * s.heads, threads / warp_size)), threads}, merge_attention_kernel,
           out.as<float>(), lse.as<float>(), other.as<const float>(), other_lse.as<const float>(), out.rows(),
           s.heads, s.value_width(), out.ld, other.ld);
}

}  // namespace coeus::cuda
