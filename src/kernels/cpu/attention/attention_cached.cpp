// SPDX-License-Identifier: Apache-2.0
// Attention of one query for each sequence over its cached keys and values. It reads the cached keys for the
// scores, then the values for the weighted sum, and is bound by reading them. A task is a sequence and a
// key/value head with all query heads that share it, so that the cache is read once for all of them.
#include "../../rows/team.hpp"
#include "../cpu.hpp"
#include "../workspace.hpp"

#include <cmath>
#include <cstring>

namespace coeus::cpu {

namespace {

/// One sequence and key/value head: `queries` adjacent query heads, and rows [first, count) of the cache with
/// keys of width `d` and values of width `e`.
template <class T>
struct CachedHead {
    const T *q, *keys, *values;
    T* out;
    int64_t key_ld, value_ld, first, count, queries, d, e;

    /// Scratch memory: `scores` [queries, count], `sums` [queries, e]. lse[h lse_ld] gets that of query head
    /// h.
    void attend(Acc<T>* scores, Acc<T>* sums, Acc<T> scale, Acc<T>* lse, int64_t lse_ld) const {
        using A = Acc<T>;
        for (int64_t p = first; p < count; ++p)
            for (int64_t h = 0; h < queries; ++h) {
                const T *query = q + h * d, *key = keys + p * key_ld;
                scores[h * count + p] = scale * Lane().sum<A>(
                                                    d, [](A x, A y) { return x * y; }, query, key);
            }
        std::fill(sums, sums + queries * e, A(0));
        for (int64_t h = 0; h < queries; ++h) lse[h * lse_ld] = softmax(scores + h * count + first);
        for (int64_t p = first; p < count; ++p)
            for (int64_t h = 0; h < queries; ++h) {
                const A weight = scores[h * count + p];
                A* sum = sums + h * e;
                const T* value = values + p * value_ld;
                Lane().each(e, [=](int64_t j) { sum[j] += weight * load(value[j]); });
            }
        for (int64_t j = 0; j < queries * e; ++j) out[j] = store<T>(sums[j]);
    }

private:
    /// Returns the log of the sum of exp of the scores.
    Acc<T> softmax(Acc<T>* scores) const {
        using A = Acc<T>;
        const int64_t seen = count - first;
        const A maximum = Lane().largest<A>(seen, scores);
        Lane().each(seen, [=](int64_t p) { scores[p] = exp_of(scores[p] - maximum); });
        const A sum = Lane().sum<A>(
                    seen, [](A p) { return p; }, scores),
                inverse = A(1) / sum;
        Lane().each(seen, [=](int64_t p) { scores[p] *= inverse; });
        return maximum + std::log(sum);
    }
};

}  // namespace

void Cpu::attention_cached(Exec& exec, Tensor out, Tensor lse, Tensor keys, Tensor values, Tensor q, Tensor k,
                           Tensor v, Tensor slots, Tensor positions, const AttentionShape& s) {
    const int64_t d = s.head_dim, e = s.value_width(), queries = s.heads / s.kv_heads;
    require(s.heads % s.kv_heads == 0 && q.rows() == s.batch && q.cols() == s.heads * d &&
                out.rows() == s.batch && out.cols() == s.heads * e && lse.rows() == s.heads &&
                lse.cols() == s.batch && lse.dense() && k.rows() == s.batch && k.cols() == s.kv_heads * d &&
                v.rows() == s.batch && v.cols() == s.kv_heads * e && keys.cols() == k.cols() &&
                values.rows() == keys.rows() && values.cols() == v.cols() && slots.count() == s.batch &&
                positions.count() == s.batch,
            "attention_cached: operands do not have the shape given");
    require(s.causal, "attention_cached: full attention has no cache");
    const auto *slot = slots.as<const int32_t>(), *position = positions.as<const int32_t>();
    int64_t seen = 0;
    for (int64_t b = 0; b < s.batch; ++b) {
        require(slot[b] >= 0 && (slot[b] + 1) * s.sequence <= keys.rows() && position[b] >= 0 &&
                    position[b] < s.sequence,
                "attention_cached: a token outside the cache");
        seen += position[b] + 1;
    }
    const bool worth_threads = seen * keys.cols() > int64_t(1) << 14;
    Scope scope(exec.workspace);
    dispatch(q.dtype, [&]<class T>(T) {
        using A = Acc<T>;
        const int64_t per_thread = workspace::attention_cached_per_thread(q.dtype, s);
        char* memory = static_cast<char*>(exec.workspace.alloc(Dtype::u8, {exec.threads * per_thread}).data);
#pragma omp parallel for num_threads(exec.threads) schedule(static) if (worth_threads)
        for (int64_t task = 0; task < s.batch * s.kv_heads; ++task) {
            const int64_t b = task / s.kv_heads, column = task % s.kv_heads * d,
                          value_column = task % s.kv_heads * e;
            const int64_t first = slot[b] * s.sequence, row = first + position[b];
            std::memcpy(keys.row<T>(row) + column, k.row<const T>(b) + column, size_t(d) * sizeof(T));
            std::memcpy(values.row<T>(row) + value_column, v.row<const T>(b) + value_column,
                        size_t(e) * sizeof(T));
            const CachedHead<T> head = {.q = q.row<const T>(b) + column * queries,
                                        .keys = keys.row<const T>(first) + column,
                                        .values = values.row<const T>(first) + value_column,
                                        .out = out.row<T>(b) + value_column * queries,
                                        .key_ld = keys.ld,
                                        .value_ld = values.ld,
                                        .first = first_key(s, nullptr, position[b]),
                                        .count = position[b] + 1,
                                        .queries = queries,
                                        .d = d,
                                        .e = e};
            A* scores = reinterpret_cast<A*>(memory + thread_index() * per_thread);
            head.attend(scores, scores + queries * s.sequence, A(s.scale),
                        lse.row<A>(task % s.kv_heads * queries) + b, lse.ld);
        }
    });
}

}  // namespace coeus::cpu
