// SPDX-License-Identifier: Apache-2.0
// Batch: the token ids or the encoded images of a batch or micro-batch, as layers read them.
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

/// Encoded images and their texts: each sample has T tokens of text, then P patches of an image. If
/// context-parallel ranks divide sequences, T and P are this rank's parts of them. Rows of a micro-batch of S
/// samples are in one of two orders:
///   stream order   the text of all samples [S T], then the patches of all samples [S P]
///   sample order   text and patches of the first sample [T + P], then those of the second one, ...
struct ImageRows {
    int64_t text_tokens = 0, patches = 0;  ///< T, P
    Tensor noisy;                          ///< type[S P, p]: patches of latents, mixed with noise
    Tensor text, pooled;     ///< type[S T, c], type[S, v]: what the text encoders make of a sample's text
    Tensor times, guidance;  ///< type[S, n]: features of the times; of the guidance, or absent
    Tensor target;           ///< acc[S P, p]
    Tensor weights;          ///< acc[S]: of each sample in the loss
    /// i32[S (T + P)] of a micro-batch: the row in stream order of each row in sample order, and the reverse.
    Tensor order, back;

    /// The samples [first, first + number). `order` and `back` remain those of a micro-batch.
    ImageRows slice(int64_t first, int64_t number) const;
};

/// A local batch or micro-batch of this rank, on the device of the computation. T = sequences * seq_len
/// tokens, one sequence after the other. If context-parallel ranks divide sequences, it has this rank's part
/// of each.
struct Batch {
    int64_t sequences = 0, seq_len = 0;
    Tensor tokens;     ///< i32[T]; absent in images
    Tensor labels;     ///< i32[T], -100 if a token has none; absent in generation
    Tensor positions;  ///< i32[T], position of each token for RoPE
    /// For every token of the whole sequences, the first index in its sequence that the token attends to:
    /// i32[sequences, whole length]. Absent: every token attends to all tokens before it.
    Tensor document_start;
    /// Token ids and labels further ahead, i32[depths, T]: row k - 1 has those k places ahead of each token,
    /// or 0 and -100 if that place is not in the token's sequence or document. Absent: nobody reads them.
    Tensor further_tokens, further_labels;
    ImageRows images;  ///< absent in text

    /// The token ids and the labels `depth` places ahead, i32[T]. Depth 0: tokens and labels.
    Tensor tokens_ahead(int64_t depth) const;
    Tensor labels_ahead(int64_t depth) const;
    int64_t count() const { return sequences * seq_len; }
    BatchShape shape() const { return {sequences, seq_len, bool(document_start)}; }
    /// The sequences [first, first + number).
    Batch slice(int64_t first, int64_t number) const;
};

}  // namespace coeus
