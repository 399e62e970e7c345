// SPDX-License-Identifier: Apache-2.0
// Causal attention, forward: out = softmax(scale q k^T) v without a sequence x sequence matrix. For each tile
// of queries the tiles of keys pass by, and a running maximum m and sum l rescale what was summed before (Dao
// et al. 2022, FlashAttention, algorithm 1). Threads share (sequence, head, group of query tiles); nothing
// depends on which.
#include "attention_tiles.hpp"

#include <cmath>

namespace coeus::cpu {

namespace {

/// One thread's memory.
template <class A>
struct Scratch {
    int64_t width;
    A *keys, *values, *scores, *queries, *outputs, *maxima, *sums;

    Scratch(A* memory, int64_t w) : width(w) {
        constexpr int64_t tiles = workspace::attention_query_tiles;
        keys = memory;
        values = keys + tile_side * width;
        scores = values + tile_side * width;
        queries = scores + tile_side * tile_side;  // transposed tiles
        outputs = queries + tiles * tile_side * width;
        maxima = outputs + tiles * tile_side * width;
        sums = maxima + tiles * tile_side;
    }
};

/// 2^(scores - maximum) in place and the running statistics, for a tile of scores [key][query]. `factor`: by
/// what earlier sums shrink.
template <class A>
void softmax_tile(A* scores, A* maxima, A* sums, A* factor, const QueryTile* masked, int64_t first_key) {
    using V = typename VectorOf<A>::type;
    using I = typename VectorOf<A>::integers;
    constexpr int64_t lanes = VectorOf<A>::lanes;
    if (masked) hide(scores, *masked, first_key, A(-1e30));
    for (int64_t i = 0; i < tile_side; i += lanes) {
        V* column = reinterpret_cast<V*>(scores + i);
        constexpr int64_t stride = tile_side / lanes;
        V& running = *reinterpret_cast<V*>(maxima + i);
        V maximum = running, other = running;  // two chains, since each step waits for the one before
        for (int64_t j = 0; j < tile_side; j += 2) {
            maximum = column[j * stride] > maximum ? column[j * stride] : maximum;
            other = column[(j + 1) * stride] > other ? column[(j + 1) * stride] : other;
        }
        maximum = other > maximum ? other : maximum;
        const V shrink = exp2_polynomial<A, V, I>(running - maximum);
        running = maximum;
        V total = {}, second = {};
        for (int64_t j = 0; j < tile_side; j += 2) {
            const V p = exp2_polynomial<A, V, I>(column[j * stride] - maximum);
            const V r = exp2_polynomial<A, V, I>(column[(j + 1) * stride] - maximum);
            column[j * stride] = p;
            column[(j + 1) * stride] = r;
            total += p;
            second += r;
        }
        V& sum = *reinterpret_cast<V*>(sums + i);
        sum = sum * shrink + (total + second);
        *reinterpret_cast<V*>(factor + i) = shrink;
    }
}

template <class T>
void query_group(const AttentionShape& s, Scratch<Acc<T>> scratch, HeadRows<T> out, Acc<T>* lse,
                 HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v, const int32_t* document_start,
                 int64_t group) {
    using A = Acc<T>;
    constexpr int64_t tiles = workspace::attention_query_tiles;
    const int64_t width = scratch.width, begin = group * tiles * tile_side;
    const int64_t end = std::min(s.sequence, begin + tiles * tile_side);
    alignas(64) A factor[tile_side];

    const auto tile_at = [&](int64_t first) {
        return QueryTile(first, std::min(tile_side, end - first), document_start);
    };
    int64_t first_key = end;
    for (int64_t t = 0; begin + t * tile_side < end; ++t) {
        const QueryTile tile = tile_at(begin + t * tile_side);
        first_key = std::min(first_key, tile.first_key);
        A* outputs = scratch.outputs + t * tile_side * width;  // first used as room for the queries
        load_tile(outputs, width, q.row(tile.first), q.ld, tile.rows, s.head_dim, A(s.scale * log2_e));
        transpose_tile(scratch.queries + t * tile_side * width, outputs, width, s.head_dim);
        std::fill(outputs, outputs + tile_side * width, A(0));
        std::fill(scratch.maxima + t * tile_side, scratch.maxima + (t + 1) * tile_side, A(-1e30));
        std::fill(scratch.sums + t * tile_side, scratch.sums + (t + 1) * tile_side, A(0));
    }
    for (int64_t key = first_key / tile_side * tile_side; key < end; key += tile_side) {
        const int64_t rows = std::min(tile_side, s.sequence - key);
        load_tile(scratch.keys, width, k.row(key), k.ld, rows, s.head_dim);
        load_tile(scratch.values, width, v.row(key), v.ld, rows, s.head_dim);
        for (int64_t t = 0; begin + t * tile_side < end; ++t) {
            const QueryTile tile = tile_at(begin + t * tile_side);
            if (!tile.sees_any(key)) continue;
            A *outputs = scratch.outputs + t * tile_side * width, *scores = scratch.scores;
            tile_product<false>(scores, tile_side, scratch.keys, width,
                                scratch.queries + t * tile_side * width, tile_side, tile_side, tile_side,
                                s.head_dim, false);
            softmax_tile(scores, scratch.maxima + t * tile_side, scratch.sums + t * tile_side, factor,
                         tile.sees_all(key) ? nullptr : &tile, key);
            for (int64_t i = 0; i < tile_side; ++i)
#pragma omp simd
                for (int64_t j = 0; j < width; ++j) outputs[i * width + j] *= factor[i];
            tile_product<true>(outputs, width, scores, tile_side, scratch.values, width, tile_side, width,
                               tile_side, true);
        }
    }
    for (int64_t t = 0; begin + t * tile_side < end; ++t) {
        const QueryTile tile = tile_at(begin + t * tile_side);
        for (int64_t i = 0; i < tile.rows; ++i) {
            const A sum = scratch.sums[t * tile_side + i];
            const A* outputs = scratch.outputs + (t * tile_side + i) * width;
            store_tile(out.row(tile.first + i), 0, outputs, width, 1, s.head_dim, A(1) / sum);
            lse[tile.first + i] = scratch.maxima[t * tile_side + i] * A(ln_2) + std::log(sum);
        }
    }
}

}  // namespace

void Cpu::attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                    const AttentionShape& s) {
    check_attention(q, k, v, lse, document_start, s);
    require(out.rows() == q.rows() && out.cols() == q.cols(),
            "attention: output and queries differ in shape");
    Scope scope(exec.workspace);
    dispatch(q.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const int64_t per_thread = workspace::attention_per_thread(q.dtype, s);
        char* memory = static_cast<char*>(exec.workspace.alloc(Dtype::u8, {exec.threads * per_thread}).data);
        const int64_t width = workspace::attention_width(q.dtype, s.head_dim);
        const int64_t groups = div_ceil(s.sequence, tile_side * workspace::attention_query_tiles);
        const int32_t* start = document_start ? document_start.as<const int32_t>() : nullptr;
        const int64_t heads = s.batch * s.heads;
#pragma omp parallel num_threads(exec.threads)
        {
            const Scratch<A> scratch(reinterpret_cast<A*>(memory + thread_index() * per_thread), width);
#pragma omp for schedule(dynamic)
            for (int64_t task = 0; task < heads * groups; ++task) {
                // the longest first, so that the threads end together
                const int64_t group = groups - 1 - task / heads;
                const int64_t sequence = task % heads / s.heads, head = task % s.heads;
                const int64_t kv_head = head / (s.heads / s.kv_heads);
                query_group<T>(s, scratch, {out, s, sequence, head}, lse.row<A>(head) + sequence * s.sequence,
                               {q, s, sequence, head}, {k, s, sequence, kv_head}, {v, s, sequence, kv_head},
                               start ? start + sequence * s.sequence : nullptr, group);
            }
        }
    });
}

}  // namespace coeus::cpu
