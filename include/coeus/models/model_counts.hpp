// SPDX-License-Identifier: Apache-2.0
// Numbers of a model's parameters and FLOPs, counted in what its parts declare.
#pragma once

#include "coeus/models/decoder_config.hpp"
#include "coeus/state/param.hpp"

namespace coeus {

/// Elements of one parameter or of several.
struct ElementCounts {
    int64_t all = 0;     ///< a tied matrix counts once
    int64_t active = 0;  ///< those that one token uses: not those of other experts
    /// Those that one token is multiplied by. A table that is only looked up has none; the output projection
    /// counts once for each token that is predicted.
    int64_t multiplied = 0;

    /// FLOPs of the products of one token, forward and backward: three products, of two operations each.
    double product_flops() const { return 6.0 * double(multiplied); }
};

/// Counts one parameter of the model. Nothing is counted if no gradient changes it (Param::is_exact): in
/// torchtitan it is not a parameter.
ElementCounts count_elements(const Param& param, const DecoderConfig& model);

struct ModelCounts {
    ElementCounts elements;
    int64_t score_width = 0;  ///< sum of H (d + e) over the layers (HeadSizes)

    /// FLOPs of forward and backward: 6 (N - N_embedding) + 6 S sum of H (d + e) over the layers, where N are
    /// the active parameters. A tied table is also the output projection, so N_embedding is not subtracted.
    /// Causality and recomputation are not taken into account (torchtitan's rule). The output projection
    /// counts once for each token that is predicted.
    double flops_per_token(int64_t seq_len) const {
        return elements.product_flops() + score_flops_per_token(seq_len);
    }
    /// The part of these FLOPs for the attention scores of `seq_len` tokens.
    double score_flops_per_token(int64_t seq_len) const {
        return 6.0 * double(score_width) * double(seq_len);
    }
};

/// Counts one layer of each kind, and what is outside of layers. The model must be valid.
ModelCounts count_model(const DecoderConfig& model);

/// The most elements that a model may have.
inline constexpr double most_elements = 1e15;
/// ConfigError if there are more elements than that. Fewer of them have less bytes than 64 bits can count.
void require_countable(double elements);
/// The same for a model, one of whose parameters alone may have more elements than 64 bits can count.
void require_countable(const DecoderConfig& model);

}  // namespace coeus
