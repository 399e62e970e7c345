// SPDX-License-Identifier: Apache-2.0
// SampleRows: token ids of whole sequences on the host, from the loader to the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coeus {

/// Sequence after sequence: i32[sequences, seq_len] each. Views of memory that belongs to someone else.
struct SampleRows {
    int64_t sequences = 0, seq_len = 0;
    std::span<const int32_t> tokens, labels;  ///< labels: -100 if one does not count
    /// Index in its sequence of the first token of each token's document, which is the first that it may see;
    /// empty: it may see all before it.
    std::span<const int32_t> document_start;

    int64_t count() const { return sequences * seq_len; }
    /// Sequences [first, first + number).
    SampleRows slice(int64_t first, int64_t number) const {
        const auto rows = [&](std::span<const int32_t> all) {
            return all.empty() ? all : all.subspan(size_t(first * seq_len), size_t(number * seq_len));
        };
        return {.sequences = number,
                .seq_len = seq_len,
                .tokens = rows(tokens),
                .labels = rows(labels),
                .document_start = rows(document_start)};
    }
};

}  // namespace coeus
