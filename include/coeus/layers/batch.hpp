// SPDX-License-Identifier: Apache-2.0
// Batch: the token ids that layers read.
#pragma once

#include "coeus/device/tensor.hpp"

#include <cstdint>

namespace coeus {

/// So many sequences of so many tokens; sequences 0: not used.
struct BatchShape {
    int64_t sequences = 0, seq_len = 0;
    int64_t count() const { return sequences * seq_len; }
};

/// Local batch or micro-batch of this rank, where it computes. T = sequences * seq_len, sequence after
/// sequence; of each sequence the part that this rank has, where context-parallel ranks divide it.
struct Batch {
    int64_t sequences = 0, seq_len = 0;
    Tensor tokens;     ///< i32[T]
    Tensor labels;     ///< i32[T], -100 where there is none; absent in generation
    Tensor positions;  ///< i32[T], position of each token for RoPE
    /// First index in its sequence that a token may see, for all tokens of the whole sequences:
    /// i32[sequences, whole length]; absent: all before it.
    Tensor document_start;

    int64_t count() const { return sequences * seq_len; }
    /// Sequences [first, first + number).
    Batch slice(int64_t first, int64_t number) const;
};

}  // namespace coeus
