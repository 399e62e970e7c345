// SPDX-License-Identifier: Apache-2.0
// SampleRows: token ids of whole sequences on the host, as the loader hands them to the engine.
#pragma once

#include "coeus/base/ignored_label.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace coeus {

/// One sequence after the other: each span is i32[sequences, seq_len]. The spans view memory of another
/// owner.
struct SampleRows {
    int64_t sequences = 0, seq_len = 0;
    std::span<const int32_t> tokens, labels;  ///< ignored_label is not counted in the loss
    /// For each token, the index within its sequence at which its document begins; the token attends to no
    /// earlier one. Empty: every token attends to all tokens before it.
    std::span<const int32_t> document_start;

    int64_t count() const { return sequences * seq_len; }
    /// The sequences [first, first + number).
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
