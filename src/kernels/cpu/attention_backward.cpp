// SPDX-License-Identifier: Apache-2.0
// Causal attention, backward (Dao et al. 2022, algorithm 4): with p = exp(scale q k^T - lse) made again tile
// by tile,
//   dv = p^T dout,   ds = p (dout v^T - delta),   delta = rowsum(dout out),   dq = scale ds k,   dk = scale
//   ds^T q.
// A thread takes a sequence and key/value head with all its query heads, so dk and dv are summed in a fixed
// order. Keys, values and their gradients of that head stay in the workspace: dq, dk and dv may overwrite q,
// k and v.
#include "attention_tiles.hpp"

namespace coeus::cpu {

namespace {

/// One thread's memory. _t: transposed.
template <class A>
struct Scratch {
    int64_t width;
    A *keys, *values, *dkeys, *dvalues;                   // of a sequence, padded to whole tiles
    A *queries, *queries_t, *douts, *douts_t, *dqueries;  // a tile each
    A *p, *ds;                                            // [key][query]
    A *lse, *delta;

    Scratch(A* memory, int64_t w, int64_t padded_keys) : width(w) {
        const int64_t whole = padded_keys * width, tile = tile_side * width;
        keys = memory;
        values = keys + whole;
        dkeys = values + whole;
        dvalues = dkeys + whole;
        queries = dvalues + whole;
        queries_t = queries + tile;
        douts = queries_t + tile;
        douts_t = douts + tile;
        dqueries = douts_t + tile;
        p = dqueries + tile;
        ds = p + tile_side * tile_side;
        lse = ds + tile_side * tile_side;
        delta = lse + tile_side;
    }
};

/// p = 2^(s - lse), ds = p (dp - delta), in place over s and dp, all [key][query].
template <class A>
void gradient_tile(A* s, A* dp, const A* lse, const A* delta, const QueryTile* masked, int64_t first_key) {
    using V = typename VectorOf<A>::type;
    using I = typename VectorOf<A>::integers;
    constexpr int64_t lanes = VectorOf<A>::lanes;
    if (masked) hide(s, *masked, first_key, A(-1e30));
    for (int64_t i = 0; i < tile_side; i += lanes) {
        const V shift = *reinterpret_cast<const V*>(lse + i), mean = *reinterpret_cast<const V*>(delta + i);
        for (int64_t j = 0; j < tile_side; ++j) {
            V& score = *reinterpret_cast<V*>(s + j * tile_side + i);
            V& slope = *reinterpret_cast<V*>(dp + j * tile_side + i);
            const V p = exp2_polynomial<A, V, I>(score - shift);
            score = p;
            slope = p * (slope - mean);
        }
    }
}

/// Rows of a tile to where a gradient goes.
template <class O>
void put_tile(O* to, int64_t to_ld, const Acc<O>* tile, int64_t ld, int64_t rows, int64_t cols, Acc<O> factor,
              bool accumulate) {
    if (accumulate)
        add_tile(to, to_ld, tile, ld, rows, cols, factor);
    else
        store_tile(to, to_ld, tile, ld, rows, cols, factor);
}

/// One tile of queries of one head against all the keys it sees.
template <class Q, class T>
void query_tile(const AttentionShape& s, const Scratch<Acc<T>>& c, const QueryTile& tile, HeadRows<Q> dq,
                HeadRows<const T> dout, HeadRows<const T> out, const Acc<T>* lse, HeadRows<const T> q,
                bool accumulate) {
    using A = Acc<T>;
    const int64_t width = c.width;
    load_tile(c.queries, width, q.row(tile.first), q.ld, tile.rows, s.head_dim, A(s.scale * log2_e));
    load_tile(c.douts, width, dout.row(tile.first), dout.ld, tile.rows, s.head_dim);
    transpose_tile(c.queries_t, c.queries, width, s.head_dim);
    transpose_tile(c.douts_t, c.douts, width, s.head_dim);
    std::fill(c.dqueries, c.dqueries + tile_side * width, A(0));
    for (int64_t i = 0; i < tile_side; ++i) {
        A dot = 0;
        const int64_t n = i < tile.rows ? s.head_dim : 0;
        const T* o = out.row(tile.first + i);
#pragma omp simd reduction(+ : dot)
        for (int64_t j = 0; j < n; ++j) dot += load(o[j]) * c.douts[i * width + j];
        c.delta[i] = dot;
        c.lse[i] = i < tile.rows ? lse[tile.first + i] * A(log2_e) : A(1e30);  // padding: p = 0
    }
    for (int64_t key = tile.first_key / tile_side * tile_side; key < tile.last_key; key += tile_side) {
        const A *keys = c.keys + key * width, *values = c.values + key * width;
        tile_product<false>(c.p, tile_side, keys, width, c.queries_t, tile_side, tile_side, tile_side,
                            s.head_dim, false);
        tile_product<false>(c.ds, tile_side, values, width, c.douts_t, tile_side, tile_side, tile_side,
                            s.head_dim, false);
        gradient_tile(c.p, c.ds, c.lse, c.delta, tile.sees_all(key) ? nullptr : &tile, key);
        tile_product<false>(c.dvalues + key * width, width, c.p, tile_side, c.douts, width, tile_side, width,
                            tile_side, true);
        tile_product<false>(c.dkeys + key * width, width, c.ds, tile_side, c.queries, width, tile_side, width,
                            tile_side, true);
        tile_product<true>(c.dqueries, width, c.ds, tile_side, keys, width, tile_side, width, tile_side,
                           true);
    }
    put_tile(dq.row(tile.first), dq.ld, c.dqueries, width, tile.rows, s.head_dim, A(s.scale), accumulate);
}

template <class Q, class K, class T>
void all_heads(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse, Tensor q,
               Tensor k, Tensor v, Tensor document_start, const AttentionShape& s, bool accumulate) {
    using A = Acc<T>;
    const Scope scope(exec.workspace);
    const int64_t per_thread = workspace::attention_backward_per_thread(q.dtype, s);
    char* memory = static_cast<char*>(exec.workspace.alloc(Dtype::u8, {exec.threads * per_thread}).data);
    const int64_t width = workspace::attention_width(q.dtype, s.head_dim), keys = s.keys().count;
    const int64_t padded = round_up(keys, tile_side), share = s.heads / s.kv_heads;
#pragma omp parallel for num_threads(exec.threads) schedule(dynamic)
    for (int64_t task = 0; task < s.batch * s.kv_heads; ++task) {
        const Scratch<A> c(reinterpret_cast<A*>(memory + thread_index() * per_thread), width, padded);
        const int64_t sequence = task / s.kv_heads, kv_head = task % s.kv_heads;
        const int32_t* starts = starts_of(document_start, s, sequence);
        const HeadRows<const T> key_rows(k, s, sequence, kv_head), value_rows(v, s, sequence, kv_head);
        for (int64_t first = 0; first < keys; first += tile_side) {
            const int64_t rows = std::min(tile_side, keys - first);
            load_tile(c.keys + first * width, width, key_rows.row(first), key_rows.ld, rows, s.head_dim);
            load_tile(c.values + first * width, width, value_rows.row(first), value_rows.ld, rows,
                      s.head_dim);
        }
        std::fill(c.dkeys, c.dkeys + 2 * padded * width, A(0));  // and dvalues behind them
        for (int64_t head = kv_head * share; head < (kv_head + 1) * share; ++head)
            for (int64_t first = 0; first < s.sequence; first += tile_side)
                query_tile<Q, T>(s, c, QueryTile(first, std::min(tile_side, s.sequence - first), s, starts),
                                 {dq, s, sequence, head}, {dout, s, sequence, head}, {out, s, sequence, head},
                                 lse.row<const A>(head) + sequence * s.sequence, {q, s, sequence, head},
                                 accumulate);
        // the queries carried the scale already, and log2(e)
        const HeadRows<K> dkey_rows(dk, s, sequence, kv_head), dvalue_rows(dv, s, sequence, kv_head);
        put_tile(dkey_rows.row(0), dkey_rows.ld, c.dkeys, width, keys, s.head_dim, A(ln_2), accumulate);
        put_tile(dvalue_rows.row(0), dvalue_rows.ld, c.dvalues, width, keys, s.head_dim, A(1), accumulate);
    }
}

}  // namespace

void Cpu::attention_backward(Exec& exec, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse,
                             Tensor q, Tensor k, Tensor v, Tensor document_start, const AttentionShape& s,
                             bool accumulate) {
    check_attention(q, k, v, lse, document_start, s);
    check_attention(dq, dk, dv, lse, document_start, s);
    require(dk.dtype == dv.dtype, "attention: gradients of keys and values differ in type");
    dispatch(q.dtype, [&]<class T>(T) {
        dispatch_out<T>(dq.dtype, [&]<class Q>(Q) {
            dispatch_out<T>(dk.dtype, [&]<class K>(K) {
                all_heads<Q, K, T>(exec, dq, dk, dv, dout, out, lse, q, k, v, document_start, s, accumulate);
            });
        });
    });
}

}  // namespace coeus::cpu
