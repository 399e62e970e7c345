// SPDX-License-Identifier: Apache-2.0
// AttentionShape: the sizes of an attention call, and which keys a query attends to: those of its document,
// window and chunk; or all.
#pragma once

#include "coeus/kernels/sequence_part.hpp"

#include <cstdint>

namespace coeus {

/// The sizes of an attention call, and which tokens its queries and keys are.
struct AttentionShape {
    int64_t batch = 1, sequence = 1;  ///< T = batch * sequence queries; sequences do not attend to each other
    int64_t heads = 1, kv_heads = 1;  ///< query head h uses key/value head h / (heads / kv_heads)
    int64_t head_dim = 1;             ///< width of a head of queries and keys
    double scale = 1;                 ///< factor of the scores, usually head_dim^-1/2
    /// Which tokens of the whole sequence the queries and keys of each sequence are; without a count: all.
    SequencePart query_part = {}, key_part = {};
    int64_t value_dim = 0;  ///< width of a head of values and of the output; 0: head_dim
    int64_t window = 0;     ///< a query attends to its own token and the window - 1 before it; 0: to all
    int64_t chunk = 0;      ///< a query attends to the tokens of its own chunk of so many; 0: to all
    /// False: a query attends to all keys given, whatever their order (full attention). Then there are no
    /// windows, chunks or documents.
    bool causal = true;

    constexpr int64_t value_width() const { return value_dim ? value_dim : head_dim; }
    constexpr SequencePart queries() const { return query_part.count ? query_part : SequencePart{sequence}; }
    constexpr SequencePart keys() const { return key_part.count ? key_part : SequencePart{sequence}; }
    bool operator==(const AttentionShape&) const = default;
};

/// Index in the sequence of the first key that the query at `index` attends to; the last one is its own, or
/// that of all keys (causal_form). All masks except the causal one are defined here. The result never
/// decreases from one query to the next, which kernels use to skip keys. `document_start` is that of the
/// whole sequence, or null.
constexpr int64_t first_key(const AttentionShape& s, const int32_t* document_start, int64_t index) {
    int64_t first = document_start ? document_start[index] : 0;
    if (s.window > 0 && index - s.window + 1 > first) first = index - s.window + 1;
    if (s.chunk > 0 && index / s.chunk * s.chunk > first) first = index / s.chunk * s.chunk;
    return first;
}
/// True if some query may attend to a first key other than 0.
constexpr bool hides_early_keys(const AttentionShape& s, bool has_documents) {
    return has_documents || s.window > 0 || s.chunk > 0;
}
/// False for full attention with another mask, which no kernel computes.
constexpr bool has_known_masks(const AttentionShape& s, bool has_documents) {
    return s.causal || !hides_early_keys(s, has_documents);
}

/// The same attention under the causal mask, for kernels that know no other: in full attention the queries
/// get indices after those of all keys.
constexpr AttentionShape causal_form(AttentionShape s) {
    if (s.causal) return s;
    const int64_t keys = s.keys().count;
    s.query_part = {s.sequence, keys};
    s.key_part = {keys};
    s.causal = true;
    return s;
}

}  // namespace coeus
