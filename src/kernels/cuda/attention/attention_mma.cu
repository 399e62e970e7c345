// SPDX-License-Identifier: Apache-2.0
// Causal attention on tensor cores, forward. A block processes 128 queries of a head, 32 per warp, or half as
// many if values are wide. A warp keeps their running maxima, sums and outputs in registers while it iterates
// over tiles of keys and values (Dao 2023, FlashAttention-2, algorithm 1).
#include "attention_mma.hpp"

#include <limits>

namespace coeus::cuda {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Tiles of 16 queries for each warp. The registers hold the outputs of two if values are at most 128 wide.
template <class Widths>
constexpr int row_tiles_of() {
    return Widths::values <= 128 ? 2 : 1;
}
template <class Widths>
constexpr int block_queries_of() {
    return mma_warps * row_tiles_of<Widths>() * mma_rows;
}

/// Shared memory in bytes: the queries, two pairs of key and value tiles, and the keys that each query sees.
template <class Widths>
constexpr int64_t shared_bytes() {
    return (mma_tile_elements(Widths::keys, block_queries_of<Widths>()) +
            2 * PassingTiles<Widths>::elements) *
               int64_t(sizeof(bf16)) +
           block_queries_of<Widths>() * int64_t(sizeof(RowRange));
}

/// Sum over the 4 lanes of a row, or the largest value that is not NaN.
__device__ inline float quad_sum(float value) {
    value += __shfl_xor_sync(whole_warp, value, 1);
    return value + __shfl_xor_sync(whole_warp, value, 2);
}
__device__ inline float quad_largest(float value) {
    value = fmaxf(value, __shfl_xor_sync(whole_warp, value, 1));
    return fmaxf(value, __shfl_xor_sync(whole_warp, value, 2));
}

/// The running statistics of one of a lane's rows.
struct QueryState {
    float maximum = minus_infinity;  ///< of the scores so far, before scaling
    float sum = 0;                   ///< of this lane's weights, relative to 2^(factor maximum)
};

template <int column_tiles>
__device__ void hide(Sums (&scores)[column_tiles], int half, int first_key, const RowRange& seen) {
    COEUS_UNROLL
    for (int c = 0; c < column_tiles; ++c) {
        COEUS_UNROLL
        for (int j = 0; j < 2; ++j) {
            const int key = first_key + c * 8 + Lane().column + j;
            if (key < seen.begin || key >= seen.end) scores[c].values[2 * half + j] = minus_infinity;
        }
    }
}

/// Turns scores into weights, and rescales the outputs so far to the new maximum. A NaN is never the maximum,
/// and propagates.
template <int column_tiles, int output_tiles>
__device__ void update(QueryState& state, Sums (&scores)[column_tiles], Sums (&outputs)[output_tiles],
                       int half, float factor) {
    float largest = state.maximum;
    COEUS_UNROLL
    for (int c = 0; c < column_tiles; ++c)
        largest = fmaxf(largest, fmaxf(scores[c].values[2 * half], scores[c].values[2 * half + 1]));
    largest = quad_largest(largest);
    // before anything has been seen, every weight is 2^-infinity = 0
    const float base = largest == minus_infinity ? 0.0f : factor * largest;
    const float shrink = power_of_2(factor * state.maximum - base);
    float total = 0;
    COEUS_UNROLL
    for (int c = 0; c < column_tiles; ++c) {
        COEUS_UNROLL
        for (int j = 0; j < 2; ++j) {
            float& score = scores[c].values[2 * half + j];
            score = power_of_2(factor * score - base);
            total += score;
        }
    }
    state.maximum = largest;
    state.sum = state.sum * shrink + total;
    COEUS_UNROLL
    for (int c = 0; c < output_tiles; ++c) {
        outputs[c].values[2 * half] *= shrink;
        outputs[c].values[2 * half + 1] *= shrink;
    }
}

template <class O, class Widths>
__global__ void __launch_bounds__(mma_threads)
    attention_mma_kernel(Heads<O> out, float* lse, Heads<const bf16> q, Heads<const bf16> k,
                         Heads<const bf16> v, Documents documents, AttentionShape s) {
    using Passing = PassingTiles<Widths>;
    constexpr int column_tiles = Passing::rows / 8, row_tiles = row_tiles_of<Widths>(),
                  warp_queries = row_tiles * mma_rows, block_queries = block_queries_of<Widths>();
    const int64_t head = block_head(), sequence = block_sequence(), kv_head = head / (s.heads / s.kv_heads);
    const int d = int(s.head_dim), e = int(s.value_width()), queries = int(s.sequence),
              keys = int(s.keys().count);
    const HeadRows<const bf16> k_rows = k.of(sequence, kv_head, d), v_rows = v.of(sequence, kv_head, e);
    const int32_t* const document_start = documents.of(sequence);
    bf16* const query_tile = reinterpret_cast<bf16*>(shared_memory());
    bf16* const passing = query_tile + mma_tile_elements(Widths::keys, block_queries);
    RowRange* const seen = reinterpret_cast<RowRange*>(passing + 2 * Passing::elements);

    const int first = part_from_last() * block_queries;
    const int warp_row = int(threadIdx.x) / warp_size * warp_queries, own = first + warp_row;
    const SharedRows<Widths::keys> own_queries(query_tile + warp_row * tile_pitch(Widths::keys));
    const RowRange seen_by_block = reach_of_queries(s, document_start, first, block_queries).some;
    const Reach reach = reach_of_queries(s, document_start, own, warp_queries);
    const Lane lane;
    const auto query_of = [&](int r, int half) { return own + r * mma_rows + half * 8 + lane.row; };

    static_assert(block_queries <= mma_threads);
    if (threadIdx.x < block_queries) seen[threadIdx.x] = seen_by(s, document_start, first + int(threadIdx.x));

    const float factor = float(s.scale * log2_e);
    QueryState states[row_tiles][2];
    Sums outputs[row_tiles][Widths::values / 8] = {}, scores[row_tiles][column_tiles];
    start_rows<Widths::keys, block_queries>(query_tile, q.of(sequence, head, d), first, queries, d);
    Passing(passing).start(k_rows, v_rows, seen_by_block.begin, keys, s);
    for (int key = seen_by_block.begin, turn = 0; key < seen_by_block.end; key += Passing::rows, turn ^= 1) {
        wait_for_copies();
        __syncthreads();  // this pair has arrived, and no thread uses the other one any more
        const Passing pair(passing + turn * Passing::elements);
        if (const int next = key + Passing::rows; next < seen_by_block.end)
            Passing(passing + (turn ^ 1) * Passing::elements).start(k_rows, v_rows, next, keys, s);
        if (!reach.some.meets(key, Passing::rows)) continue;
        multiply_rows<Widths::keys>(scores, own_queries, pair.first);
        const bool sees_all = reach.all.contains(key, Passing::rows);
        COEUS_UNROLL
        for (int r = 0; r < row_tiles; ++r) {
            COEUS_UNROLL
            for (int half = 0; half < 2; ++half) {
                if (!sees_all) hide(scores[r], half, key, seen[query_of(r, half) - first]);
                update(states[r][half], scores[r], outputs[r], half, factor);
            }
        }
        add_weighted_tile<Widths::values>(outputs, scores, pair.second);
    }
    wait_for_copies();  // needed if no query sees a key
    COEUS_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
        COEUS_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int query = query_of(r, half);
            const float sum = quad_sum(states[r][half].sum);
            if (query >= queries) continue;
            put_sums(out.of(sequence, head, e).row(query), outputs[r], half, sum == 0 ? 0.0f : 1 / sum, e,
                     false);
            if (lane.column == 0)
                lse[(head * s.batch + sequence) * s.sequence + query] =
                    sum == 0 ? minus_infinity
                             : (factor * states[r][half].maximum + log2f(sum)) / float(log2_e);
        }
    }
}

}  // namespace

void attention_mma(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                   const AttentionShape& s) {
    dispatch_out<bf16>(out.dtype, [&]<class O>(O) {
        dispatch_width(s, [&]<class Widths>(Widths) {
            static_assert(shared_bytes<Widths>() <= most_shared_bytes);
            launch(exec, "attention_mma",
                   mma_grid(s.sequence, block_queries_of<Widths>(), s.heads, s, shared_bytes<Widths>()),
                   attention_mma_kernel<O, Widths>, heads_of<O>(out, s), lse.as<float>(),
                   heads_of<const bf16>(q, s), heads_of<const bf16>(k, s), heads_of<const bf16>(v, s),
                   documents_of(document_start, s), s);
        });
    });
}

}  // namespace coeus::cuda
