// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels for gradients of attention on tensor cores, by mma and by wgmma: which queries see a
// key, what is kept of a query, and P and dS of a score.
#pragma once

#include "attention_mma.hpp"

namespace coeus::cuda {

/// P of a query's score, without the factor `scale`.
__device__ inline float weight_of(float score, float factor, float lse) {
    return power_of_2(factor * score - float(log2_e) * lse);
}
/// Turns a query's score and its product of dout and v into P and dS, without the factor `scale`.
__device__ inline void weigh(float& score, float& product, float factor, float lse, float delta) {
    score = weight_of(score, factor, lse);
    product = score * (product - delta);
}

/// Sets to zero what has a bit: bit 4 c + i for weights[c].values[i].
template <int column_tiles>
__device__ void hide(Sums (&weights)[column_tiles], uint32_t hidden) {
    static_assert(column_tiles * 4 <= 32);
    COEUS_UNROLL
    for (int c = 0; c < column_tiles; ++c) {
        COEUS_UNROLL
        for (int i = 0; i < 4; ++i)
            if ((hidden >> (c * 4 + i) & 1u) != 0) weights[c].values[i] = 0;
    }
}

/// Sets the products of one of a lane's rows to zero where the query does not see the key.
template <int column_tiles>
__device__ void hide(Sums (&products)[column_tiles], int half, int first_key, const RowRange& seen) {
    const int begin = seen.begin, end = seen.end;
    COEUS_UNROLL
    for (int c = 0; c < column_tiles; ++c) {
        COEUS_UNROLL
        for (int j = 0; j < 2; ++j) {
            const int key = first_key + c * 8 + Lane().column + j;
            if (key < begin || key >= end) products[c].values[2 * half + j] = 0;
        }
    }
}

/// What a block needs of each of its queries, besides q and dout.
struct QueryRow {
    float lse, delta;
    RowRange seen;
};
__device__ inline QueryRow query_row(const Statistics& statistics, const AttentionShape& s,
                                     const int32_t* document_start, int64_t sequence, int64_t head,
                                     int query) {
    if (query >= s.sequence) return {0, 0, {0, 0}};
    const int64_t at = (head * s.batch + sequence) * s.sequence + query;
    return {statistics.lse[at], statistics.delta[at], seen_by(s, document_start, query)};
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

}  // namespace coeus::cuda
