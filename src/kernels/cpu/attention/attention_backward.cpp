// SPDX-License-Identifier: Apache-2.0
// Attention, backward (Dao et al. 2022, algorithm 4). With p = exp(scale q k^T - lse), recomputed tile
// by tile:
//   dv = p^T dout,   ds = p (dout v^T - delta),   delta = rowsum(dout out),
//   dq = scale ds k,   dk = scale ds^T q
// A task is a sequence and a key/value head with all its query heads, so that dk and dv are summed in a fixed
// order. Keys, values and their gradients of that head are kept in the workspace, so dq, dk and dv may
// overwrite q, k and v.
#include "attention_tiles.hpp"

namespace coeus::cpu {

namespace {

/// The memory of one thread. Tiles hold sums, or operands as words along their rows, down their columns
/// (_pairs; for single elements these are the rows themselves), or transposed (_t).
template <class T>
struct BackwardScratch {
    using A = Acc<T>;
    using W = Word<T>;
    int64_t width, words;              // a row of keys, in elements and in words
    int64_t value_width, value_words;  // a row of values
    W *keys, *key_pairs, *values;      // of a whole sequence, padded to whole tiles
    A *dkeys, *dvalues;
    W *queries, *queries_t, *query_pairs, *douts, *douts_t, *dout_pairs;  // a tile each
    A* dqueries;
    A *p, *ds;  // [key][query]
    W *p_rows, *ds_rows, *ds_pairs;
    A *lse, *delta;

    BackwardScratch(char* memory, const AttentionShape& s, int64_t padded_keys)
        : width(workspace::attention_width(dtype_of<T>(), s.head_dim)),
          words(width / Depth<T>::elements),
          value_width(workspace::attention_width(dtype_of<T>(), s.value_width())),
          value_words(value_width / Depth<T>::elements) {
        constexpr bool pairs = Depth<T>::elements > 1;
        const int64_t tile = tile_side * words, value_tile = tile_side * value_words,
                      square = tile_side * tile_side;
        const auto take = [&]<class E>(E*& tensor, int64_t count) {
            tensor = reinterpret_cast<E*>(memory);
            memory += count * int64_t(sizeof(E));
        };
        take(keys, padded_keys * words);
        take(key_pairs, pairs ? padded_keys * words : 0);
        take(values, padded_keys * value_words);
        take(dkeys, padded_keys * width);
        take(dvalues, padded_keys * value_width);
        for (W** room : {&queries, &queries_t}) take(*room, tile);
        for (W** room : {&douts, &douts_t}) take(*room, value_tile);
        take(query_pairs, pairs ? tile : 0);
        take(dout_pairs, pairs ? value_tile : 0);
        take(dqueries, tile_side * width);
        take(p, square);
        take(ds, square);
        ds_pairs = reinterpret_cast<W*>(ds);
        p_rows = reinterpret_cast<W*>(p);
        ds_rows = ds_pairs;
        if (pairs) {
            take(p_rows, square / 2);
            take(ds_rows, square / 2);
        }
        take(lse, tile_side);
        take(delta, tile_side);
    }
};

/// Computes p = 2^(factor s - lse) and ds = p (dp - delta) from the scores s and from dp, which is in ds, all
/// [key][query]. Writes both as words along the rows, and ds also as words down the columns.
template <class T>
void gradient_tile(const BackwardScratch<T>& c, Acc<T> factor, const QueryTile* masked, int64_t first_key) {
    using A = Acc<T>;
    using V = typename VectorOf<A>::type;
    using I = typename VectorOf<A>::integers;
    constexpr int64_t lanes = VectorOf<A>::lanes;
    if (masked) hide(c.p, *masked, first_key);
    for (int64_t i = 0; i < tile_side; i += lanes) {
        const V shift = *reinterpret_cast<const V*>(c.lse + i),
                mean = *reinterpret_cast<const V*>(c.delta + i);
        const auto at = [&](const A* tile, int64_t j) {
            return *reinterpret_cast<const V*>(tile + j * tile_side + i);
        };
        for (int64_t j = 0; j < tile_side; j += 2) {
            const V p = exp2_polynomial<A, V, I>(at(c.p, j) * factor - shift),
                    q = exp2_polynomial<A, V, I>(at(c.p, j + 1) * factor - shift);
            const V dp = p * (at(c.ds, j) - mean), dq = q * (at(c.ds, j + 1) - mean);
            put_along<T>(c.p_rows, j, i, p);
            put_along<T>(c.p_rows, j + 1, i, q);
            if constexpr (Depth<T>::elements > 1) {
                put_along<T>(c.ds_rows, j, i, dp);
                put_along<T>(c.ds_rows, j + 1, i, dq);
            }
            put_down<T>(c.ds_pairs, j, i, dp, dq);
        }
    }
}

/// Processes one tile of queries of one head against all keys that it sees.
template <class Q, class T>
void query_tile(const AttentionShape& s, const BackwardScratch<T>& c, const QueryTile& tile, HeadRows<Q> dq,
                HeadRows<const T> dout, HeadRows<const T> out, const Acc<T>* lse, HeadRows<const T> q,
                bool add_to_dq) {
    using A = Acc<T>;
    constexpr int64_t elements = Depth<T>::elements;
    const int64_t width = c.width, words = c.words, head_words = div_ceil(s.head_dim, elements),
                  value_width = c.value_width, value_words = c.value_words,
                  value_head_words = div_ceil(s.value_width(), elements);
    const A factor = A(s.scale * log2_e);
    load_tile<T>(c.queries, words, q.row(tile.first), q.ld, tile.rows, s.head_dim);
    load_tile<T>(c.douts, value_words, dout.row(tile.first), dout.ld, tile.rows, s.value_width());
    transpose_tile(c.queries_t, c.queries, words, head_words);
    transpose_tile(c.douts_t, c.douts, value_words, value_head_words);
    const Word<T>*queries = down_columns<T>(c.query_pairs, c.queries, words),
          *douts = down_columns<T>(c.dout_pairs, c.douts, value_words);
    std::fill(c.dqueries, c.dqueries + tile_side * width, A(0));
    for (int64_t i = 0; i < tile_side; ++i) {
        A dot = 0;
        const int64_t n = i < tile.rows ? s.value_width() : 0;
        const T *o = out.row(tile.first + i), *d = dout.row(tile.first + i);
#pragma omp simd reduction(+ : dot)
        for (int64_t j = 0; j < n; ++j) dot += load(o[j]) * load(d[j]);
        c.delta[i] = dot;
        c.lse[i] = i < tile.rows ? lse[tile.first + i] * A(log2_e) : -A(hidden_score);  // padding: p = 0
    }
    for (int64_t key = tile.first_key / tile_side * tile_side; key < tile.last_key; key += tile_side) {
        const Word<T>*keys = c.keys + key * words, *values = c.values + key * value_words;
        tile_product<false>(c.p, tile_side, keys, words, c.queries_t, tile_side, tile_side, tile_side,
                            head_words, false);
        tile_product<false>(c.ds, tile_side, values, value_words, c.douts_t, tile_side, tile_side, tile_side,
                            value_head_words, false);
        gradient_tile<T>(c, factor, tile.sees_all(key) ? nullptr : &tile, key);
        tile_product<false>(c.dvalues + key * value_width, value_width, c.p_rows, tile_side / elements, douts,
                            value_width, tile_side, value_width, tile_side / elements, true);
        tile_product<false>(c.dkeys + key * width, width, c.ds_rows, tile_side / elements, queries, width,
                            tile_side, width, tile_side / elements, true);
        const Word<T>* down = elements > 1 ? c.key_pairs + key * words : keys;
        tile_product<true>(c.dqueries, width, c.ds_pairs, tile_side, down, width, tile_side, width,
                           tile_side / elements, true);
    }
    if (add_to_dq)
        add_tile(dq.row(tile.first), dq.ld, c.dqueries, width, tile.rows, s.head_dim, A(s.scale));
    else
        store_tile(dq.row(tile.first), dq.ld, c.dqueries, width, tile.rows, s.head_dim, A(s.scale));
}

template <class Q, class K, class T>
void all_heads(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse, Tensor q,
               Tensor k, Tensor v, Tensor document_start, const AttentionShape& s, bool add_to_dq) {
    using A = Acc<T>;
    const Scope scope(exec.workspace);
    const int64_t per_thread = workspace::attention_backward_per_thread(q.dtype, s);
    char* memory = static_cast<char*>(exec.workspace.alloc(Dtype::u8, {exec.threads * per_thread}).data);
    const int64_t keys = s.keys().count, padded = round_up(keys, tile_side), share = s.heads / s.kv_heads,
                  d = s.head_dim, e = s.value_width();
#pragma omp parallel for num_threads(exec.threads) schedule(dynamic)
    for (int64_t task = 0; task < s.batch * s.kv_heads; ++task) {
        const BackwardScratch<T> c(memory + thread_index() * per_thread, s, padded);
        const int64_t sequence = task / s.kv_heads, kv_head = task % s.kv_heads;
        const int32_t* starts = starts_of(document_start, s, sequence);
        const HeadRows<const T> key_rows(k, s, sequence, kv_head * d),
            value_rows(v, s, sequence, kv_head * e);
        for (int64_t first = 0; first < keys; first += tile_side) {
            const int64_t rows = std::min(tile_side, keys - first);
            Word<T>* tile = c.keys + first * c.words;
            load_tile<T>(tile, c.words, key_rows.row(first), key_rows.ld, rows, d);
            down_columns<T>(c.key_pairs + first * c.words, tile, c.words);
            load_tile<T>(c.values + first * c.value_words, c.value_words, value_rows.row(first),
                         value_rows.ld, rows, e);
        }
        std::fill(c.dkeys, c.dkeys + padded * (c.width + c.value_width), A(0));  // and dvalues, which follow
        for (int64_t head = kv_head * share; head < (kv_head + 1) * share; ++head)
            for (int64_t first = 0; first < s.sequence; first += tile_side)
                query_tile<Q, T>(s, c, QueryTile(first, std::min(tile_side, s.sequence - first), s, starts),
                                 {dq, s, sequence, head * d}, {dout, s, sequence, head * e},
                                 {out, s, sequence, head * e}, lse.row<const A>(head) + sequence * s.sequence,
                                 {q, s, sequence, head * d}, add_to_dq);
        const HeadRows<K> dkey_rows(dk, s, sequence, kv_head * d), dvalue_rows(dv, s, sequence, kv_head * e);
        store_tile(dkey_rows.row(0), dkey_rows.ld, c.dkeys, c.width, keys, d, A(s.scale));
        store_tile(dvalue_rows.row(0), dvalue_rows.ld, c.dvalues, c.value_width, keys, e, A(1));
    }
}

}  // namespace

void Cpu::attention_backward(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                             Tensor q, Tensor k, Tensor v, Tensor document_start, const AttentionShape& s,
                             bool add_to_dq) {
    check_attention(q, k, v, lse, document_start, s);
    check_attention(dq, dk, dv, lse, document_start, s);
    require(dk.dtype == dv.dtype, "attention: gradients of keys and values differ in type");
    dispatch(q.dtype, [&]<class T>(T) {
        dispatch_out<T>(dq.dtype, [&]<class Q>(Q) {
            dispatch_out<T>(dk.dtype, [&]<class K>(K) {
                all_heads<Q, K, T>(exec, dq, dk, dv, dout, out, lse, q, k, v, document_start, causal_form(s),
                                   add_to_dq);
            });
        });
    });
}

}  // namespace coeus::cpu
