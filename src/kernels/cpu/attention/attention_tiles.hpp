// SPDX-License-Identifier: Apache-2.0
// Shared by the forward and backward of attention: which keys a tile of queries attends to ("sees"), and the
// rows of one sequence and head of each operand. Scores are stored transposed, [key][query]. So maxima, sums
// and masks run along the queries, a vector at a time and without horizontal operations, and keys need no
// transposition.
#pragma once

#include "../cpu.hpp"
#include "../products/tile.hpp"
#include "../workspace.hpp"

namespace coeus::cpu {

static_assert(tile_side == workspace::attention_tile);

/// Powers of 2 are cheaper to compute than powers of e.
inline constexpr double log2_e = 1.44269504088896340736;

/// The score of a hidden key: below every real score, so that its exponential is 0.
inline constexpr double hidden_score = -1e30;

/// The rows of one sequence (of queries or of keys, depending on the tensor) in the columns of one head,
/// which begin at `column`.
template <class T>
struct HeadRows {
    T* data;
    int64_t ld;
    HeadRows(Tensor t, const AttentionShape& s, int64_t sequence, int64_t column)
        : data(t.row<T>(sequence * (t.rows() / s.batch)) + column), ld(t.ld) {}
    T* row(int64_t i) const { return data + i * ld; }
};

/// The document starts of one sequence; null if there are none.
inline const int32_t* starts_of(Tensor document_start, const AttentionShape& s, int64_t sequence) {
    if (!document_start) return nullptr;
    return document_start.as<const int32_t>() + sequence * (document_start.count() / s.batch);
}

/// The queries [first, first + rows) of a sequence, and the keys that they see: query i sees the keys
/// [start[i], stop[i]).
struct QueryTile {
    int64_t first, rows;
    int64_t first_key, last_key;        ///< keys that some query sees: [first_key, last_key)
    int64_t first_common, last_common;  ///< keys that all queries see: [first_common, last_common)
    int32_t start[tile_side] = {}, stop[tile_side] = {};

    QueryTile() = default;
    /// `document_start` is that of the whole sequence, or null.
    QueryTile(int64_t first_, int64_t rows_, const AttentionShape& s, const int32_t* document_start)
        : first(first_), rows(rows_) {
        const SequencePart queries = s.queries(), keys = s.keys();
        for (int64_t i = 0; i < rows; ++i) {
            const int64_t index = queries.index(first + i);
            start[i] = int32_t(keys.below(coeus::first_key(s, document_start, index)));
            stop[i] = int32_t(keys.below(index + 1));
        }
        first_key = *std::min_element(start, start + rows);
        first_common = *std::max_element(start, start + rows);
        last_key = stop[rows - 1];
        last_common = stop[0];
    }
    /// True if every query sees all of the keys [key, key + tile_side).
    bool sees_all(int64_t key) const { return key >= first_common && key + tile_side <= last_common; }
    bool sees_any(int64_t key) const { return key < last_key && key + tile_side > first_key; }
};

/// Sets the scores [key][query] of hidden keys to `hidden_score`.
template <class A>
[[gnu::noinline]] void hide(A* scores, const QueryTile& queries, int64_t first_key) {
    for (int64_t j = 0; j < tile_side; ++j) {
        const auto key = int32_t(first_key + j);
#pragma omp simd
        for (int32_t i = 0; i < int32_t(tile_side); ++i) {
            const bool hidden = (key >= queries.stop[i]) | (key < queries.start[i]);
            scores[j * tile_side + i] = hidden ? A(hidden_score) : scores[j * tile_side + i];
        }
    }
}

inline void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lse,
                            const Tensor& document_start, const AttentionShape& s) {
    const int64_t tokens = s.batch * s.sequence, keys = s.batch * s.keys().count;
    require(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0,
            "attention: query heads are not a multiple of key/value heads");
    require(s.queries().count == s.sequence && q.rows() == tokens && q.cols() == s.heads * s.head_dim &&
                k.rows() == keys && k.cols() == s.kv_heads * s.head_dim && v.rows() == keys &&
                v.cols() == s.kv_heads * s.value_width(),
            "attention: operands do not have the shape given");
    require(lse.rows() == s.heads && lse.cols() == tokens && lse.dense(), "attention: lse is not [H, T]");
    require(has_known_masks(s, bool(document_start)),
            "attention: full attention has no windows, chunks or documents");
    require(!document_start || tokens == 0 ||
                (document_start.count() % s.batch == 0 &&
                 document_start.count() / s.batch > s.queries().index(s.sequence - 1)),
            "attention: needs one document start for each token of the whole sequences");
}

/// Calls f with a value of the type of an operand, which is T or T's accumulation type.
template <class T, class F>
void dispatch_out(Dtype type, F&& f) {
    if (type == dtype_of<T>()) return f(T());
    require(type == dtype_of<Acc<T>>(), "attention: a result is neither of the type nor of acc");
    f(Acc<T>());
}

}  // namespace coeus::cpu
