// SPDX-License-Identifier: Apache-2.0
// Attention, forward: out = softmax(scale q k^T) v, without a sequence x sequence matrix. Each tile of
// queries iterates over the tiles of keys; a running maximum m and sum l rescale the output so far (Dao et
// al. 2022, FlashAttention, algorithm 1). Threads share tasks (sequence, head, group of query tiles); no
// result depends on which thread takes which.
#include "attention_tiles.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace coeus::cpu {

namespace {

/// The memory of one thread. Tiles hold operands as words (tile.hpp), or sums.
template <class T>
struct ForwardScratch {
    using A = Acc<T>;
    using W = Word<T>;
    int64_t words;                     // words in a row of keys
    int64_t value_width, value_words;  // a row of values, in elements and in words
    W *keys, *values, *value_pairs, *queries;
    A *scores, *outputs, *maxima, *sums;

    ForwardScratch(char* memory, const AttentionShape& s)
        : words(workspace::attention_width(dtype_of<T>(), s.head_dim) / Depth<T>::elements),
          value_width(workspace::attention_width(dtype_of<T>(), s.value_width())),
          value_words(value_width / Depth<T>::elements) {
        constexpr int64_t tiles = workspace::attention_query_tiles;
        keys = reinterpret_cast<W*>(memory);
        values = keys + tile_side * words;
        value_pairs = values + tile_side * value_words;
        queries = value_pairs + (Depth<T>::elements - 1) * tile_side * value_words;  // transposed tiles
        scores = reinterpret_cast<A*>(queries + tiles * tile_side * words);
        outputs = scores + tile_side * tile_side;
        maxima = outputs + tiles * tile_side * value_width;
        sums = maxima + tiles * tile_side;
    }
};

/// Replaces the scores [key][query] by 2^(factor (scores - maximum)), as words down the columns, and updates
/// the running statistics. `shrinks` gets the factors by which earlier sums shrink.
template <class T>
void softmax_tile(Acc<T>* scores, Acc<T> factor, Acc<T>* maxima, Acc<T>* sums, Acc<T>* shrinks,
                  const QueryTile* masked, int64_t first_key) {
    using A = Acc<T>;
    using V = typename VectorOf<A>::type;
    using I = typename VectorOf<A>::integers;
    constexpr int64_t lanes = VectorOf<A>::lanes;
    if (masked) hide(scores, *masked, first_key);
    for (int64_t i = 0; i < tile_side; i += lanes) {
        const V* column = reinterpret_cast<const V*>(scores + i);
        constexpr int64_t stride = tile_side / lanes;
        V& running = *reinterpret_cast<V*>(maxima + i);
        V maximum = running, other = running;  // two chains, since each step waits for the one before
        for (int64_t j = 0; j < tile_side; j += 2) {
            maximum = column[j * stride] > maximum ? column[j * stride] : maximum;
            other = column[(j + 1) * stride] > other ? column[(j + 1) * stride] : other;
        }
        maximum = other > maximum ? other : maximum;
        const V shrink = exp2_polynomial<A, V, I>((running - maximum) * factor);
        running = maximum;
        V total = {}, second = {};
        for (int64_t j = 0; j < tile_side; j += 2) {
            const V p = exp2_polynomial<A, V, I>((column[j * stride] - maximum) * factor);
            const V r = exp2_polynomial<A, V, I>((column[(j + 1) * stride] - maximum) * factor);
            put_down<T>(reinterpret_cast<Word<T>*>(scores), j, i, p, r);
            total += p;
            second += r;
        }
        V& sum = *reinterpret_cast<V*>(sums + i);
        sum = sum * shrink + (total + second);
        *reinterpret_cast<V*>(shrinks + i) = shrink;
    }
}

template <class O, class T>
void query_group(const AttentionShape& s, ForwardScratch<T> scratch, HeadRows<O> out, Acc<T>* lse,
                 HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v, const int32_t* document_start,
                 int64_t group) {
    using A = Acc<T>;
    constexpr int64_t most = workspace::attention_query_tiles;
    constexpr int64_t elements = Depth<T>::elements;
    const A factor = A(s.scale * log2_e);
    const int64_t width = scratch.value_width, words = scratch.words, begin = group * most * tile_side,
                  keys = s.keys().count;
    const int64_t tiles = std::min(most, div_ceil(s.sequence - begin, tile_side));
    std::array<QueryTile, size_t(most)> tile_at;
    alignas(64) A shrinks[tile_side];

    int64_t first_key = keys, last_key = 0;
    for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = begin + t * tile_side;
        const QueryTile& tile = tile_at[size_t(t)] =
            QueryTile(first, std::min(tile_side, s.sequence - first), s, document_start);
        first_key = std::min(first_key, tile.first_key);
        last_key = std::max(last_key, tile.last_key);
        A* outputs = scratch.outputs + t * tile_side * width;
        Word<T>* rows = scratch.keys;  // not used for keys yet: room for the queries
        load_tile<T>(rows, words, q.row(tile.first), q.ld, tile.rows, s.head_dim);
        transpose_tile(scratch.queries + t * tile_side * words, rows, words, div_ceil(s.head_dim, elements));
        std::fill(outputs, outputs + tile_side * width, A(0));
        std::fill(scratch.maxima + t * tile_side, scratch.maxima + (t + 1) * tile_side, A(hidden_score));
        std::fill(scratch.sums + t * tile_side, scratch.sums + (t + 1) * tile_side, A(0));
    }
    for (int64_t key = first_key / tile_side * tile_side; key < last_key; key += tile_side) {
        const int64_t rows = std::min(tile_side, keys - key);
        load_tile<T>(scratch.keys, words, k.row(key), k.ld, rows, s.head_dim);
        load_tile<T>(scratch.values, scratch.value_words, v.row(key), v.ld, rows, s.value_width());
        const Word<T>* values = down_columns<T>(scratch.value_pairs, scratch.values, scratch.value_words);
        for (int64_t t = 0; t < tiles; ++t) {
            const QueryTile& tile = tile_at[size_t(t)];
            if (!tile.sees_any(key)) continue;
            A *outputs = scratch.outputs + t * tile_side * width, *scores = scratch.scores;
            tile_product<false>(scores, tile_side, scratch.keys, words,
                                scratch.queries + t * tile_side * words, tile_side, tile_side, tile_side,
                                div_ceil(s.head_dim, elements), false);
            softmax_tile<T>(scores, factor, scratch.maxima + t * tile_side, scratch.sums + t * tile_side,
                            shrinks, tile.sees_all(key) ? nullptr : &tile, key);
            for (int64_t i = 0; i < tile_side; ++i)
#pragma omp simd
                for (int64_t j = 0; j < width; ++j) outputs[i * width + j] *= shrinks[i];
            tile_product<true>(outputs, width, reinterpret_cast<const Word<T>*>(scores), tile_side, values,
                               width, tile_side, width, tile_side / elements, true);
        }
    }
    for (int64_t t = 0; t < tiles; ++t) {
        const QueryTile& tile = tile_at[size_t(t)];
        for (int64_t i = 0; i < tile.rows; ++i) {
            // hidden scores are summed until a query sees its first key, whose larger maximum scales them to
            // zero
            const A maximum = scratch.maxima[t * tile_side + i], sum = scratch.sums[t * tile_side + i];
            const bool sees_a_key = maximum > A(hidden_score);
            const A* outputs = scratch.outputs + (t * tile_side + i) * width;
            store_tile(out.row(tile.first + i), 0, outputs, width, 1, s.value_width(),
                       sees_a_key ? A(1) / sum : A(0));
            lse[tile.first + i] =
                sees_a_key ? maximum * A(s.scale) + std::log(sum) : -std::numeric_limits<A>::infinity();
        }
    }
}

template <class O, class T>
void all_groups(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                const AttentionShape& s) {
    using A = Acc<T>;
    const Scope scope(exec.workspace);
    const int64_t per_thread = workspace::attention_per_thread(q.dtype, s);
    char* memory = static_cast<char*>(exec.workspace.alloc(Dtype::u8, {exec.threads * per_thread}).data);
    const int64_t groups = div_ceil(s.sequence, tile_side * workspace::attention_query_tiles);
    const int64_t heads = s.batch * s.heads;
#pragma omp parallel num_threads(exec.threads)
    {
        const ForwardScratch<T> scratch(memory + thread_index() * per_thread, s);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < heads * groups; ++task) {
            // the longest tasks first, so that the threads finish together
            const int64_t group = groups - 1 - task / heads;
            const int64_t sequence = task % heads / s.heads, head = task % s.heads;
            const int64_t kv_head = head / (s.heads / s.kv_heads);
            query_group<O, T>(s, scratch, {out, s, sequence, head * s.value_width()},
                              lse.row<A>(head) + sequence * s.sequence, {q, s, sequence, head * s.head_dim},
                              {k, s, sequence, kv_head * s.head_dim},
                              {v, s, sequence, kv_head * s.value_width()},
                              starts_of(document_start, s, sequence), group);
        }
    }
}

// With l = log(e^a + e^b) for the two lse a and b: out = e^(a - l) out + e^(b - l) other (Liu et al. 2023,
// Ring Attention).
void merge(Exec& exec, Tensor out, Tensor lse, Tensor other_out, Tensor other_lse) {
    const int64_t heads = lse.rows(), head_dim = out.cols() / std::max<int64_t>(1, heads);
    dispatch(out.dtype, [&]<class A>(A) {
        if constexpr (std::is_same_v<A, bf16>) {
            throw LogicError("partial attention is in the accumulate type");
        } else {
            parallel_rows(exec, out.rows(), out.cols(), [&](int64_t t) {
                for (int64_t h = 0; h < heads; ++h) {
                    A& own = lse.row<A>(h)[t];
                    const A other = other_lse.row<const A>(h)[t], largest = std::max(own, other);
                    if (largest == -std::numeric_limits<A>::infinity()) continue;  // neither saw a key
                    const A sum = largest + std::log(std::exp(own - largest) + std::exp(other - largest));
                    const A keep = std::exp(own - sum), take = std::exp(other - sum);
                    A* to = out.row<A>(t) + h * head_dim;
                    const A* from = other_out.row<const A>(t) + h * head_dim;
#pragma omp simd
                    for (int64_t j = 0; j < head_dim; ++j) to[j] = keep * to[j] + take * from[j];
                    own = sum;
                }
            });
        }
    });
}

}  // namespace

void Cpu::attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor document_start,
                    const AttentionShape& s) {
    check_attention(q, k, v, lse, document_start, s);
    require(out.rows() == q.rows() && out.cols() == s.heads * s.value_width(),
            "attention: the output does not have the shape given");
    dispatch(q.dtype, [&]<class T>(T) {
        dispatch_out<T>(out.dtype, [&]<class O>(O) {
            all_groups<O, T>(exec, out, lse, q, k, v, document_start, causal_form(s));
        });
    });
}

void Cpu::merge_attention(Exec& exec, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                          Tensor document_start, const AttentionShape& s) {
    const Scope scope(exec.workspace);
    const Tensor other = exec.workspace.alloc(out.dtype, out.shape),
                 other_lse = exec.workspace.alloc(lse.dtype, lse.shape);
    attention(exec, other, other_lse, q, k, v, document_start, s);
    merge(exec, out, lse, other, other_lse);
}

}  // namespace coeus::cpu
