// SPDX-License-Identifier: Apache-2.0
// Causal attention on tensor cores, backward, with the formulas of attention_backward.cu. Blocks of 64
// queries sum dq over the tiles of keys. Blocks of 64 keys sum dk and dv over the tiles of queries of all
// heads that share these keys, one head after the other. Both compute a warp's scores and products with the
// warp's own rows on the left, so that the sums need nothing from other warps:
//   queries: S = q k^T,    dP = dout v^T,    dq += dS k
//   keys:    S^T = k q^T,  dP^T = v dout^T,  dv += P^T dout,  dk += dS^T q
// A warp's registers hold dk and dv of 16 keys if keys and values have at most 320 columns together. For
// wider heads two warps share the keys: both compute the scores, and each sums half of the columns.
#include "attention_mma.hpp"

namespace coeus::cuda {

namespace {

constexpr int block_queries = mma_warps * mma_rows;

/// Warps that share the same keys, and keys of a block.
template <class Widths>
constexpr int sharing_warps() {
    return Widths::keys + Widths::values <= 320 ? 1 : 2;
}
template <class Widths>
constexpr int block_keys_of() {
    return mma_warps / sharing_warps<Widths>() * mma_rows;
}

/// Shared memory in bytes: two tiles of own rows and two pairs of tiles of the other side.
template <class Widths>
constexpr int64_t tile_bytes(int own_rows) {
    return (own_rows * Widths::row_elements + 2 * PassingTiles<Widths>::elements) * int64_t(sizeof(bf16));
}
/// The same for blocks of keys, with lse and delta for the queries in each pair.
template <class Widths>
constexpr int64_t key_block_bytes() {
    return tile_bytes<Widths>(block_keys_of<Widths>()) + 4 * passing_rows<Widths>() * int64_t(sizeof(float));
}

/// Turns a query's score and its product of dout and v into P and dS, without the factor `scale`.
__device__ inline void weigh(float& score, float& product, float factor, float lse, float delta) {
    score = power_of_2(factor * score - float(log2_e) * lse);
    product = score * (product - delta);
}

/// Sets to zero where `is_hidden(row, column)`, for the lane's two rows (0 and 1) and the columns of the
/// tile.
template <int column_tiles, class F>
__device__ void hide(Sums (&weights)[column_tiles], Sums (&products)[column_tiles], F&& is_hidden) {
    COEUS_UNROLL
    for (int c = 0; c < column_tiles; ++c) {
        COEUS_UNROLL
        for (int i = 0; i < 4; ++i)
            if (is_hidden(i / 2, c * 8 + Lane().column + i % 2))
                weights[c].values[i] = products[c].values[i] = 0;
    }
}

template <class O, class Widths>
__global__ void __launch_bounds__(mma_threads)
    query_gradients_mma_kernel(Heads<O> dq, Heads<const bf16> dout, Statistics statistics,
                               Heads<const bf16> q, Heads<const bf16> k, Heads<const bf16> v,
                               AttentionShape s, bool accumulate) {
    using Passing = PassingTiles<Widths>;
    constexpr int column_tiles = Passing::rows / 8;
    const int64_t head = blockIdx.y, sequence = blockIdx.z, kv_head = head / (s.heads / s.kv_heads);
    const int d = int(s.head_dim), e = int(s.value_width()), queries = int(s.sequence),
              keys = int(s.keys().count);
    const HeadRows<const bf16> k_rows = k.of(sequence, kv_head, d), v_rows = v.of(sequence, kv_head, e);
    const int32_t* const document_start = statistics.documents.of(sequence);
    bf16* const query_tile = reinterpret_cast<bf16*>(shared_memory());
    bf16* const dout_tile = query_tile + mma_tile_elements(Widths::keys, block_queries);
    bf16* const passing = dout_tile + mma_tile_elements(Widths::values, block_queries);

    const int first = int(gridDim.x - 1 - blockIdx.x) * block_queries;
    const int warp_row = int(threadIdx.x) / warp_size * mma_rows, own = first + warp_row;
    const RowRange seen_by_block = reach_of_queries(s, document_start, first, block_queries).some;
    const Reach reach = reach_of_queries(s, document_start, own, mma_rows);
    RowRange seen[2] = {};
    float lse[2] = {}, delta[2] = {};
    COEUS_UNROLL
    for (int half = 0; half < 2; ++half) {
        const int query = own + Lane().row + half * 8;
        if (query >= queries) continue;
        const int64_t at = (head * s.batch + sequence) * s.sequence + query;
        seen[half] = seen_by(s, document_start, query);
        lse[half] = statistics.lse[at];
        delta[half] = statistics.delta[at];
    }

    const float factor = float(s.scale * log2_e);
    Sums sums[1][Widths::keys / 8] = {}, scores[1][column_tiles], products[1][column_tiles];
    start_rows<Widths::keys, block_queries>(query_tile, q.of(sequence, head, d), first, queries, d);
    start_rows<Widths::values, block_queries>(dout_tile, dout.of(sequence, head, e), first, queries, e);
    Passing(passing).start(k_rows, v_rows, seen_by_block.begin, keys, s);
    for (int key = seen_by_block.begin, turn = 0; key < seen_by_block.end; key += Passing::rows, turn ^= 1) {
        wait_for_copies();
        __syncthreads();  // this pair has arrived, and no thread uses the other one any more
        const Passing pair(passing + turn * Passing::elements);
        if (const int next = key + Passing::rows; next < seen_by_block.end)
            Passing(passing + (turn ^ 1) * Passing::elements).start(k_rows, v_rows, next, keys, s);
        if (!reach.some.meets(key, Passing::rows)) continue;
        multiply_rows<Widths::keys>(scores, query_tile + warp_row * tile_pitch(Widths::keys), pair.first);
        multiply_rows<Widths::values>(products, dout_tile + warp_row * tile_pitch(Widths::values),
                                      pair.second);
        COEUS_UNROLL
        for (int c = 0; c < column_tiles; ++c) {
            COEUS_UNROLL
            for (int i = 0; i < 4; ++i)
                weigh(scores[0][c].values[i], products[0][c].values[i], factor, lse[i / 2], delta[i / 2]);
        }
        if (!reach.all.contains(key, Passing::rows))
            hide(scores[0], products[0], [&](int half, int column) {
                return key + column < seen[half].begin || key + column >= seen[half].end;
            });
        add_weighted_tile<Widths::keys>(sums, products, pair.first);
    }
    wait_for_copies();  // needed if no query sees a key
    COEUS_UNROLL
    for (int half = 0; half < 2; ++half)
        if (const int query = own + Lane().row + half * 8; query < queries)
            put_sums(dq.of(sequence, head, d).row(query), sums[0], half, float(s.scale), d, accumulate);
}

/// The first of `count` rows for which `holds` is true, which must then be true for all rows after it;
/// `count` if it is true for none.
template <class F>
__device__ int first_where(int count, F&& holds) {
    int begin = 0, end = count;
    while (begin < end) {
        const int middle = begin + (end - begin) / 2;
        if (holds(middle))
            end = middle;
        else
            begin = middle + 1;
    }
    return begin;
}

/// The queries that see `count` keys from `first` on. Keys beyond the last are ignored.
__device__ inline Reach reach_of_keys(const AttentionShape& s, const int32_t* document_start, int first,
                                      int count) {
    const SequencePart queries = s.queries(), keys = s.keys();
    const int64_t end = first + count < keys.count ? first + count : keys.count;
    if (first >= end) return {{0, 0}, {0, 0}};
    const int64_t first_index = keys.index(first), last_index = keys.index(end - 1);
    const auto before_documents_after = [&](int64_t index) {
        if (!hides_early_keys(s, document_start != nullptr)) return int(queries.count);
        return first_where(int(queries.count), [&](int query) {
            return first_key(s, document_start, queries.index(query)) > index;
        });
    };
    return {{int(queries.below(first_index)), before_documents_after(last_index)},
            {int(queries.below(last_index)), before_documents_after(first_index)}};
}

template <class O, class Widths>
__global__ void __launch_bounds__(mma_threads)
    key_gradients_mma_kernel(Heads<O> dk, Heads<O> dv, Heads<const bf16> dout, Statistics statistics,
                             Heads<const bf16> q, Heads<const bf16> k, Heads<const bf16> v, AttentionShape s,
                             bool accumulate) {
    using Passing = PassingTiles<Widths>;
    constexpr int column_tiles = Passing::rows / 8, block_keys = block_keys_of<Widths>(),
                  sharing = sharing_warps<Widths>(), dk_columns = Widths::keys / sharing,
                  dv_columns = Widths::values / sharing;
    const int64_t kv_head = blockIdx.y, sequence = blockIdx.z, group = s.heads / s.kv_heads;
    const int d = int(s.head_dim), e = int(s.value_width()), queries = int(s.sequence),
              keys = int(s.keys().count);
    const int32_t* const document_start = statistics.documents.of(sequence);
    bf16* const key_tile = reinterpret_cast<bf16*>(shared_memory());
    bf16* const value_tile = key_tile + mma_tile_elements(Widths::keys, block_keys);
    bf16* const passing = value_tile + mma_tile_elements(Widths::values, block_keys);
    float* const row_statistics = reinterpret_cast<float*>(passing + 2 * Passing::elements);

    const int first = int(blockIdx.x) * block_keys, warp = int(threadIdx.x) / warp_size;
    const int warp_row = warp / sharing * mma_rows, own = first + warp_row;
    const int dk_column = warp % sharing * dk_columns, dv_column = warp % sharing * dv_columns;
    const RowRange seeing_block = reach_of_keys(s, document_start, first, block_keys).some;
    const Reach reach = reach_of_keys(s, document_start, own, mma_rows);
    int64_t key_index[2];
    for (int half = 0; half < 2; ++half) key_index[half] = s.keys().index(own + Lane().row + half * 8);

    // the tiles of queries of one head, then those of the next
    const int seeing = seeing_block.end - seeing_block.begin;
    const int tiles = seeing > 0 ? (seeing + Passing::rows - 1) / Passing::rows : 0;
    const auto start = [&](int tile) {
        const int64_t head = kv_head * group + tile / tiles;
        const int query = seeing_block.begin + tile % tiles * Passing::rows;
        Passing(passing + tile % 2 * Passing::elements)
            .start(q.of(sequence, head, d), dout.of(sequence, head, e), query, queries, s);
        float* const to = row_statistics + tile % 2 * (2 * Passing::rows);
        const int64_t at = (head * s.batch + sequence) * s.sequence;
        if (const int i = int(threadIdx.x) % Passing::rows; int(threadIdx.x) < 2 * Passing::rows) {
            const float* const from =
                (int(threadIdx.x) < Passing::rows ? statistics.lse : statistics.delta) + at;
            const bool is_there = query + i < queries;
            copy_async<4>(to + threadIdx.x, is_there ? from + query + i : from, !is_there);
        }
    };

    const float factor = float(s.scale * log2_e);
    Sums dk_sums[1][dk_columns / 8] = {}, dv_sums[1][dv_columns / 8] = {}, scores[1][column_tiles],
                                 products[1][column_tiles];
    start_rows<Widths::keys, block_keys>(key_tile, k.of(sequence, kv_head, d), first, keys, d);
    start_rows<Widths::values, block_keys>(value_tile, v.of(sequence, kv_head, e), first, keys, e);
    if (tiles > 0) start(0);
    for (int tile = 0; tile < tiles * int(group); ++tile) {
        wait_for_copies();
        __syncthreads();  // this pair has arrived, and no thread uses the other one any more
        const Passing pair(passing + tile % 2 * Passing::elements);
        if (tile + 1 < tiles * int(group)) start(tile + 1);
        const int query = seeing_block.begin + tile % tiles * Passing::rows;
        if (!reach.some.meets(query, Passing::rows)) continue;
        multiply_rows<Widths::keys>(scores, key_tile + warp_row * tile_pitch(Widths::keys), pair.first);
        multiply_rows<Widths::values>(products, value_tile + warp_row * tile_pitch(Widths::values),
                                      pair.second);
        const float* const lse = row_statistics + tile % 2 * (2 * Passing::rows) + Lane().column;
        const float* const delta = lse + Passing::rows;
        COEUS_UNROLL
        for (int c = 0; c < column_tiles; ++c) {
            COEUS_UNROLL
            for (int i = 0; i < 4; ++i)
                weigh(scores[0][c].values[i], products[0][c].values[i], factor, lse[c * 8 + i % 2],
                      delta[c * 8 + i % 2]);
        }
        if (!reach.all.contains(query, Passing::rows))
            hide(scores[0], products[0], [&](int half, int column) {
                if (query + column >= queries) return true;
                const int64_t index = s.queries().index(query + column);
                return key_index[half] > index || key_index[half] < first_key(s, document_start, index);
            });
        add_weighted_tile<Widths::values>(dv_sums, scores, pair.second + dv_column);
        add_weighted_tile<Widths::keys>(dk_sums, products, pair.first + dk_column);
    }
    wait_for_copies();  // needed if no query sees a key
    COEUS_UNROLL
    for (int half = 0; half < 2; ++half)
        if (const int key = own + Lane().row + half * 8; key < keys) {
            put_sums(dk.of(sequence, kv_head, d).row(key) + dk_column, dk_sums[0], half, float(s.scale),
                     d - dk_column, accumulate);
            put_sums(dv.of(sequence, kv_head, e).row(key) + dv_column, dv_sums[0], half, 1.0f, e - dv_column,
                     accumulate);
        }
}

}  // namespace

void attention_backward_mma(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout,
                            const Statistics& statistics, Tensor q, Tensor k, Tensor v,
                            const AttentionShape& s, bool accumulate) {
    const auto launch_for = [&]<class Q, class K, class Widths>(Q, K, Widths) {
        static_assert(tile_bytes<Widths>(block_queries) <= most_shared_bytes &&
                      key_block_bytes<Widths>() <= most_shared_bytes);
        launch(exec, "attention_query_gradients_mma",
               mma_grid(s.sequence, block_queries, s.heads, s, tile_bytes<Widths>(block_queries)),
               query_gradients_mma_kernel<Q, Widths>, heads_of<Q>(dq, s), heads_of<const bf16>(dout, s),
               statistics, heads_of<const bf16>(q, s), heads_of<const bf16>(k, s), heads_of<const bf16>(v, s),
               s, accumulate);
        launch(exec, "attention_key_gradients_mma",
               mma_grid(s.keys().count, block_keys_of<Widths>(), s.kv_heads, s, key_block_bytes<Widths>()),
               key_gradients_mma_kernel<K, Widths>, heads_of<K>(dk, s), heads_of<K>(dv, s),
               heads_of<const bf16>(dout, s), statistics, heads_of<const bf16>(q, s),
               heads_of<const bf16>(k, s), heads_of<const bf16>(v, s), s, accumulate);
    };
    dispatch_out<bf16>(dq.dtype, [&](auto of_queries) {
        dispatch_out<bf16>(dk.dtype, [&](auto of_keys) {
            dispatch_width(s, [&](auto width) { launch_for(of_queries, of_keys, width); });
        });
    });
}

}  // namespace coeus::cuda
