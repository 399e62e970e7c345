// SPDX-License-Identifier: Apache-2.0
// Batch: the token ids of a batch or micro-batch, as layers read them.
#pragma once

#include "coeus/device/tensor.hpp"

#include <cstdint>

namespace coeus {

/// Number of sequences and their length in tokens; sequences 0: not used.
struct BatchShape {
    int64_t sequences = 0, seq_len = 0;
    bool masks_documents = false;  ///< the batch has document_start
    int64_t count() const { return sequences * seq_len; }
    /// The part of each of `ranks` ranks that divide the sequences.
    BatchShape divided(int ranks) const { return {sequences, seq_len / ranks, masks_documents}; }
};

/// A local batch or micro-batch of this rank, on the device of the computation. T = sequences * seq_len
/// tokens, one sequence after the other. If context-parallel ranks divide sequences, it has this rank's part
/// of each.
struct Batch {
    int64_t sequences = 0, seq_len = 0;
    Tensor tokens;     ///< i32[T]
    Tensor labels;     ///< i32[T], -100 if a token has none; absent in generation
    Tensor positions;  ///< i32[T], position of each token for RoPE
    /// For every token of the whole sequences, the first index in its sequence that the token attends to:
    /// i32[sequences, whole length]. Absent: every token attends to all tokens before it.
    Tensor document_start;
    /// Token ids and labels further ahead, i32[depths, T]: row k - 1 has those k places ahead of each token,
    /// or 0 and -100 if that place is not in the token's sequence or document. Absent: nobody reads them.
    Tensor further_tokens, further_labels;

    /// The token ids and the labels `depth` places ahead, i32[T]. Depth 0: tokens and labels.
    Tensor tokens_ahead(int64_t depth) const;
    Tensor labels_ahead(int64_t depth) const;
    int64_t count() const { return sequences * seq_len; }
    BatchShape shape() const { return {sequences, seq_len, bool(document_start)}; }
    /// The sequences [first, first + number).
    Batch slice(int64_t first, int64_t number) const;
};

}  // namespace coeus
