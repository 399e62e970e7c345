// SPDX-License-Identifier: Apache-2.0
// What the kernels of mixtures of experts (Shazeer et al. 2017) take besides tensors. The comments of the
// kernels use these letters and words:
//   n           tokens
//   E, k        experts of the layer, and experts of a token
//   A           assignments of a token to an expert, n k; number a = t k + j is the j-th expert of token t
//   B           sequences of a micro-batch
//   rows        a buffer that has the assignments grouped by expert
//   m           the most experts of a token that one rank has, if several ranks divide the experts
#pragma once

#include "coeus/device/tensor.hpp"

namespace coeus {

/// How a router chooses the experts of a token, and weighs them. The choice is by score + bias; equal ones go
/// to the lower number.
struct RouteOptions {
    int64_t top_k = 1;
    /// The experts are in `groups` of adjacent numbers. Only those of the kept_groups best groups may be
    /// chosen; a group counts the sum of its two best experts (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2).
    int64_t groups = 1, kept_groups = 1;
    bool sigmoid = false;      ///< a score is the sigmoid of a logit; false: the softmax over all experts
    bool normalise = false;    ///< divide the scores of the chosen experts by their sum
    double scale = 1;          ///< multiplies the weights
    bool round_robin = false;  ///< assignment a goes to expert a mod E, whatever the scores are

    bool operator==(const RouteOptions&) const = default;
};

/// The sequences of n rows (tokens), which are part of a micro-batch: those from number `first` on. The
/// micro-batch has one sequence after the other, each of `length` tokens.
struct SequenceRows {
    int64_t first = 0, length = 1;

    /// The sequence of token t.
    constexpr int64_t sequence_of(int64_t t) const { return (first + t) / length; }
    /// The first of n tokens that is not before `sequence`; n: there is none. Its tokens end where those of
    /// the next sequence begin.
    constexpr int64_t begin_of(int64_t sequence, int64_t n) const {
        const int64_t begin = sequence * length - first;
        return begin < 0 ? 0 : begin < n ? begin : n;
    }
};

/// Groups of rows begin at multiples of this number.
inline constexpr int64_t group_rows = 32;

/// The rows of each group in a buffer: those of group g are [begins[g], begins[g] + counts[g]). Begins are
/// ascending multiples of `multiple`. The rows between a group and the next one are its padding,
/// which is zero in every buffer. Both tensors are i32[G], on the device.
struct Groups {
    Tensor begins, counts;
    /// The sum of the counts, which is known without reading them; for rows that come from other ranks, their
    /// mean number over the ranks.
    int64_t assignments = 0;
    int64_t multiple = group_rows;  ///< products of groups need group_rows

    explicit operator bool() const { return bool(counts); }
    int64_t number() const { return counts.count(); }
};

/// Rows of a buffer that fits any assignment of `assignments` rows to `groups` groups.
constexpr int64_t grouped_rows(int64_t assignments, int64_t groups, int64_t multiple = group_rows) {
    return assignments + groups * (multiple - 1);
}

/// Each of several ranks has `experts` experts of adjacent numbers. The row of a token goes once to each rank
/// that has some of its experts. The tokens are divided in `parts` of adjacent ones, the last of which may
/// have fewer tokens or none. A unit is what one part sends to one rank: unit u is that of rank u / parts and
/// part u % parts.
struct RankRows {
    int64_t experts = 1, parts = 1;

    constexpr int64_t rank_of(int64_t expert) const { return expert / experts; }
    /// Tokens of a part of n tokens.
    constexpr int64_t tokens_of_part(int64_t n) const { return (n + parts - 1) / parts; }
    /// The unit of token t of n if it goes to this expert.
    constexpr int64_t unit(int64_t expert, int64_t t, int64_t n) const {
        return rank_of(expert) * parts + t / tokens_of_part(n);
    }
};

/// The function of a feed-forward layer, which a gated one applies to its gate: silu(g) = g sigmoid(g); GELU
/// in the form with tanh (Hendrycks and Gimpel 2016), which is g sigmoid(2 sqrt(2/pi) (g + 0.044715 g^3)).
enum class Activation : uint8_t { silu, gelu_tanh };

/// The activation between the two matrices of a feed-forward layer: (u + shift) g sigmoid(alpha g), with g at
/// most `limit` and u within +-limit. The default is SwiGLU (Shazeer 2020). With GELU: (u + shift) gelu(g),
/// and alpha is not read.
struct Gate {
    Activation activation = Activation::silu;
    double limit = 0;  ///< 0: none
    double alpha = 1, shift = 0;
    bool interleaved = false;  ///< g and u alternate in a row (gpt-oss); false: g is its first half
    /// A row's scale multiplies g and u, instead of the result: the weight of an expert's input (Llama 4).
    bool scales_input = false;

    bool operator==(const Gate&) const = default;
};

}  // namespace coeus
