// SPDX-License-Identifier: Apache-2.0
// Causal attention on tensor cores, backward, with the formulas of attention_backward.cu. Blocks of 128 or 64
// queries sum dq over the tiles of keys. Blocks of 64 keys sum dk and dv over the tiles of queries of all
// heads that share these keys, one head after the other. Both compute a warp's scores and products with the
// warp's own rows on the left, so that the sums need nothing from other warps:
//   queries: S = q k^T,    dP = dout v^T,    dq += dS k
//   keys:    S^T = k q^T,  dP^T = v dout^T,  dv += P^T dout,  dk += dS^T q
// Tiles pass from shared memory to the tensor cores through ldmatrix, whose rate limits both kernels. A warp
// loads the fewer of them the more own rows it has, and the more of these it keeps in registers. A warp's
// registers hold dq of 32 queries if keys have at most 128 columns, otherwise of 16. They hold dk and dv of
// 16 keys if keys and values have at most 320 columns together. For wider heads two warps share the keys:
// both compute the scores, and each sums half of the columns.
#include "attention_gradients.hpp"

#include <algorithm>
#include <type_traits>

namespace coeus::cuda {

namespace {

/// Warps that share the same keys, and keys of a block.
template <class Widths>
constexpr int sharing_warps() {
    return Widths::keys + Widths::values <= 320 ? 1 : 2;
}
template <class Widths>
constexpr int block_keys_of() {
    return mma_warps / sharing_warps<Widths>() * mma_rows;
}

/// Shared memory of a block of keys in bytes: two tiles of own rows, two pairs of tiles of the other side,
/// and lse and delta for the queries in each pair.
template <class Widths>
constexpr int64_t key_block_bytes() {
    return (block_keys_of<Widths>() * Widths::row_elements + 2 * PassingTiles<Widths>::elements) *
               int64_t(sizeof(bf16)) +
           4 * passing_rows<Widths>() * int64_t(sizeof(float));
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

/// Own rows in registers if they are kept there.
template <int width, int row_tiles, bool kept>
using OwnRows = std::conditional_t<kept, KeptRows<width, row_tiles>, SharedRows<width>>;

/// How blocks and warps process queries, in the kernel for their gradients.
template <class Widths>
struct QueryBlocks {
    /// Tiles of 16 queries for each warp, and rows of a warp and of a block. Narrow heads have few products
    /// for a score, and need many warps more than they need fewer loads.
    static constexpr int row_tiles = Widths::keys > 32 && Widths::keys <= 128 ? 2 : 1,
                         warp_rows = row_tiles * mma_rows, rows = mma_warps * warp_rows;
    /// Keys of a tile, and columns of the scores that a warp has at a time.
    static constexpr int key_rows = passing_rows<Widths>(), columns = std::min(32, key_rows);

    /// Registers of a thread for sums, scores and products, and for its own rows. It keeps these if they fit:
    /// then the products do not load them again for each tile. About 45 others are for addresses and masks.
    static constexpr int registers = row_tiles * (Widths::keys / 2 + columns),
                         dout_registers = row_tiles * Widths::values / 4,
                         query_registers = row_tiles * Widths::keys / 4, most_registers = 208;
    static constexpr bool keeps_dout = registers + dout_registers <= most_registers,
                          keeps_queries = registers + dout_registers + query_registers <= most_registers;
    using Queries = OwnRows<Widths::keys, row_tiles, keeps_queries>;
    using Douts = OwnRows<Widths::values, row_tiles, keeps_dout>;

    /// Elements of shared memory of a tile of keys and of one of values.
    static constexpr int key_elements = mma_tile_elements(Widths::keys, key_rows),
                         value_elements = mma_tile_elements(Widths::values, key_rows);
    static constexpr int64_t bytes_with(int value_tiles) {
        return (rows * Widths::row_elements + 2 * key_elements + value_tiles * value_elements) *
                   int64_t(sizeof(bf16)) +
               rows * int64_t(sizeof(QueryRow));
    }
    /// Tiles of values in shared memory: two if they fit, so that one is loaded while the other is used.
    /// Otherwise one, which is loaded while the products with keys are computed.
    static constexpr int value_tiles = bytes_with(2) <= most_shared_bytes ? 2 : 1;
    static constexpr int64_t bytes = bytes_with(value_tiles);
};

template <class O, class Widths>
__global__ void __launch_bounds__(mma_threads)
    query_gradients_mma_kernel(Heads<O> dq, Heads<const bf16> dout, Statistics statistics,
                               Heads<const bf16> q, Heads<const bf16> k, Heads<const bf16> v,
                               AttentionShape s, bool accumulate) {
    using Blocks = QueryBlocks<Widths>;
    constexpr int row_tiles = Blocks::row_tiles, key_rows = Blocks::key_rows, columns = Blocks::columns;
    const int64_t head = block_head(), sequence = block_sequence(), kv_head = head / (s.heads / s.kv_heads);
    const int d = int(s.head_dim), e = int(s.value_width()), queries = int(s.sequence),
              keys = int(s.keys().count);
    const HeadRows<const bf16> k_rows = k.of(sequence, kv_head, d), v_rows = v.of(sequence, kv_head, e);
    const int32_t* const document_start = statistics.documents.of(sequence);
    bf16* const query_tile = reinterpret_cast<bf16*>(shared_memory());
    bf16* const dout_tile = query_tile + mma_tile_elements(Widths::keys, Blocks::rows);
    bf16* const key_tiles = dout_tile + mma_tile_elements(Widths::values, Blocks::rows);
    bf16* const value_tiles = key_tiles + 2 * Blocks::key_elements;
    QueryRow* const query_rows =
        reinterpret_cast<QueryRow*>(value_tiles + Blocks::value_tiles * Blocks::value_elements);

    const int first = part_from_last() * Blocks::rows;
    const int warp_row = int(threadIdx.x) / warp_size * Blocks::warp_rows, own = first + warp_row;
    const RowRange seen_by_block = reach_of_queries(s, document_start, first, Blocks::rows).some;
    const Reach reach = reach_of_queries(s, document_start, own, Blocks::warp_rows);
    static_assert(Blocks::rows <= mma_threads);
    if (threadIdx.x < Blocks::rows)
        query_rows[threadIdx.x] =
            query_row(statistics, s, document_start, sequence, head, first + int(threadIdx.x));

    const auto start_keys = [&](int key, int turn) {
        start_rows<Widths::keys, key_rows>(key_tiles + turn * Blocks::key_elements, k_rows, key, keys, d);
    };
    const auto start_values = [&](int key, int turn) {
        start_rows<Widths::values, key_rows>(value_tiles + turn * Blocks::value_elements, v_rows, key, keys,
                                             e);
    };
    start_rows<Widths::keys, Blocks::rows>(query_tile, q.of(sequence, head, d), first, queries, d);
    start_rows<Widths::values, Blocks::rows>(dout_tile, dout.of(sequence, head, e), first, queries, e);
    start_keys(seen_by_block.begin, 0);
    start_values(seen_by_block.begin, 0);
    wait_for_copies();
    __syncthreads();
    const typename Blocks::Queries own_queries(query_tile + warp_row * tile_pitch(Widths::keys));
    const typename Blocks::Douts own_douts(dout_tile + warp_row * tile_pitch(Widths::values));

    const float factor = float(s.scale * log2_e);
    Sums sums[row_tiles][Widths::keys / 8] = {}, scores[row_tiles][columns / 8],
                                        products[row_tiles][columns / 8];
    for (int begin = seen_by_block.begin, turn = 0; begin < seen_by_block.end; begin += key_rows, turn ^= 1) {
        wait_for_copies();
        __syncthreads();  // these keys and values have arrived, and no thread uses those before them any more
        const bf16* const key_tile = key_tiles + turn * Blocks::key_elements;
        const bf16* const value_tile = value_tiles + turn % Blocks::value_tiles * Blocks::value_elements;
        const int next = begin + key_rows;
        const bool has_next = next < seen_by_block.end;
        if (has_next) start_keys(next, turn ^ 1);
        if (has_next && Blocks::value_tiles == 2) start_values(next, turn ^ 1);
        COEUS_NO_UNROLL
        for (int part = 0; part < key_rows; part += columns) {
            const int key = begin + part;
            const bool sees_some = reach.some.meets(key, columns);
            if (sees_some)
                multiply_rows<Widths::values>(products, own_douts,
                                              value_tile + part * tile_pitch(Widths::values));
            if constexpr (Blocks::value_tiles == 1) {
                static_assert(columns == key_rows);
                __syncthreads();  // no thread uses these values any more
                if (has_next) start_values(next, 0);
            }
            if (!sees_some) continue;
            const bf16* const part_keys = key_tile + part * tile_pitch(Widths::keys);
            multiply_rows<Widths::keys>(scores, own_queries, part_keys);
            const bool sees_all = reach.all.contains(key, columns);
            COEUS_UNROLL
            for (int r = 0; r < row_tiles; ++r) {
                COEUS_UNROLL
                for (int half = 0; half < 2; ++half) {
                    const QueryRow& query = query_rows[warp_row + r * mma_rows + half * 8 + Lane().row];
                    COEUS_UNROLL
                    for (int c = 0; c < columns / 8; ++c) {
                        COEUS_UNROLL
                        for (int i = 2 * half; i < 2 * half + 2; ++i)
                            weigh(scores[r][c].values[i], products[r][c].values[i], factor, query.lse,
                                  query.delta);
                    }
                    if (!sees_all) hide(products[r], half, key, query.seen);
                }
            }
            add_weighted_tile<Widths::keys>(sums, products, part_keys);
        }
    }
    COEUS_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
        COEUS_UNROLL
        for (int half = 0; half < 2; ++half)
            if (const int query = own + r * mma_rows + half * 8 + Lane().row; query < queries)
                put_sums(dq.of(sequence, head, d).row(query), sums[r], half, float(s.scale), d, accumulate);
    }
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
    const int64_t kv_head = block_head(), sequence = block_sequence(), group = s.heads / s.kv_heads;
    const int d = int(s.head_dim), e = int(s.value_width()), queries = int(s.sequence),
              keys = int(s.keys().count);
    const int32_t* const document_start = statistics.documents.of(sequence);
    bf16* const key_tile = reinterpret_cast<bf16*>(shared_memory());
    bf16* const value_tile = key_tile + mma_tile_elements(Widths::keys, block_keys);
    bf16* const passing = value_tile + mma_tile_elements(Widths::values, block_keys);
    float* const row_statistics = reinterpret_cast<float*>(passing + 2 * Passing::elements);

    const int first = part_from_first() * block_keys, warp = int(threadIdx.x) / warp_size;
    const int warp_row = warp / sharing * mma_rows, own = first + warp_row;
    const int dk_column = warp % sharing * dk_columns, dv_column = warp % sharing * dv_columns;
    const SharedRows<Widths::keys> own_keys(key_tile + warp_row * tile_pitch(Widths::keys));
    const SharedRows<Widths::values> own_values(value_tile + warp_row * tile_pitch(Widths::values));
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
        multiply_rows<Widths::keys>(scores, own_keys, pair.first);
        multiply_rows<Widths::values>(products, own_values, pair.second);
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
                            const AttentionShape& s, bool add_to_dq) {
    const auto launch_for = [&]<class Q, class K, class Widths>(Q, K, Widths) {
        static_assert(QueryBlocks<Widths>::bytes <= most_shared_bytes &&
                      key_block_bytes<Widths>() <= most_shared_bytes);
        launch(exec, "attention_query_gradients_mma",
               mma_grid(s.sequence, QueryBlocks<Widths>::rows, s.heads, s, QueryBlocks<Widths>::bytes),
               query_gradients_mma_kernel<Q, Widths>, heads_of<Q>(dq, s), heads_of<const bf16>(dout, s),
               statistics, heads_of<const bf16>(q, s), heads_of<const bf16>(k, s), heads_of<const bf16>(v, s),
               s, add_to_dq);
        launch(exec, "attention_key_gradients_mma",
               mma_grid(s.keys().count, block_keys_of<Widths>(), s.kv_heads, s, key_block_bytes<Widths>()),
               key_gradients_mma_kernel<K, Widths>, heads_of<K>(dk, s), heads_of<K>(dv, s),
               heads_of<const bf16>(dout, s), statistics, heads_of<const bf16>(q, s),
               heads_of<const bf16>(k, s), heads_of<const bf16>(v, s), s, false);
    };
    dispatch_out<bf16>(dq.dtype, [&](auto of_queries) {
        dispatch_out<bf16>(dk.dtype, [&](auto of_keys) {
            dispatch_width(s, [&](auto width) { launch_for(of_queries, of_keys, width); });
        });
    });
}

}  // namespace coeus::cuda
