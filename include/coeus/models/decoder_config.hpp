// SPDX-License-Identifier: Apache-2.0
// Shapes and constants of a decoder-only model, and numbers computed from them.
#pragma once

#include "coeus/kernels/kernels.hpp"
#include "coeus/layers/rope_table.hpp"
#include "coeus/models/layer_config.hpp"

#include <optional>
#include <string>
#include <vector>

namespace coeus {

/// rms_norm; layer_norm with a weight; np_layer_norm without parameters. None has a bias.
enum class NormType : uint8_t { rms_norm, layer_norm, np_layer_norm };

/// Which initial values of torchtitan a model has, if torchtitan has changed those of its family: of 2025,
/// when its decks were in TOML, or of 2026.
enum class InitialValues : uint8_t { of_2025, of_2026 };

/// The parts of a decoder's loss: their numbers in StepScalars::losses.
namespace decoder_loss {
inline constexpr size_t balance = 0;  ///< balances the experts within each sequence
inline constexpr size_t mtp = 1;      ///< of tokens further ahead
}  // namespace decoder_loss

/// Llama's feed-forward width: round_up(multiplier * int(8 dim / 3), multiple_of).
struct FfnRule {
    double multiplier = 1;
    int64_t multiple_of = 256;

    int64_t width(int64_t dim) const;
    bool operator==(const FfnRule&) const = default;
};

struct RopeConfig {
    double theta = 10000;  ///< base of the frequencies
    RopeScaling scaling = {};
    RopeLayout layout = RopeLayout::interleaved;

    bool operator==(const RopeConfig&) const = default;
};

/// Each field is named once, in for_each_field (config_fields.hpp).
struct DecoderConfig {
    std::string family;  ///< "llama3"
    std::string flavor;  ///< "8B"
    int64_t dim = 0, layers = 0, vocab = 0;
    AttentionConfig attention;
    LayerPattern windowed;  ///< the layers in which attention.window applies; others attend to all tokens
    /// The layers without RoPE. They attend to all chunks, and have the temperature; others do not have it.
    LayerPattern without_rope = {.period = 0};
    FeedForwardConfig feed_forward;
    MoeConfig moe;
    LayerPattern moe_layers;               ///< the layers with experts, if moe has any; the others are dense
    std::optional<FfnRule> ffn_rule = {};  ///< the rule for the feed-forward width; not set: a given number
    RopeConfig rope;
    double norm_eps = 1e-5;
    NormType norm_type = NormType::rms_norm;
    bool tied = false;  ///< the output projection is the embedding table
    int64_t max_seq_len = 131072;
    /// Depths of multi-token prediction: layers after the last one, like it, for further tokens
    /// (DeepSeek-V3).
    int64_t mtp_layers = 0;
    double mtp_scale = 0.3;  ///< weight of the mean of their losses
    InitialValues initial_values = InitialValues::of_2026;

    /// The configuration of a layer. The numbers from `layers` on are those of multi-token prediction.
    LayerConfig layer(int64_t number) const;
    /// All layers, with those of multi-token prediction.
    int64_t all_layers() const { return layers + mtp_layers; }
    /// True if the last pipeline stage needs the embedding table too.
    bool embeds_at_end() const { return tied || mtp_layers > 0; }
    /// The number of a layer among those with experts.
    int64_t moe_row(int64_t number) const;
    /// The numbers of the layers with experts.
    std::vector<int64_t> layers_with_experts() const;
    /// How many there are.
    int64_t moe_rows() const { return moe_row(all_layers()); }
    /// ConfigError naming the field, the rule and the nearest valid value.
    void validate() const;
    /// Elements of all parameters; a tied matrix counts once.
    int64_t parameters() const;
    /// The same with those experts only that one token uses.
    int64_t active_parameters() const;
    /// FLOPs of forward and backward: 6 (N - N_embedding) + 6 S sum of H (d + e) over the layers, where N are
    /// the active parameters. A tied table is also the output projection, so N_embedding is not subtracted.
    /// Causality and recomputation are not taken into account (torchtitan's rule). The output projection
    /// counts once for each token that is predicted.
    double flops_per_token(int64_t seq_len) const;
    /// The part of these FLOPs for the attention scores of `seq_len` tokens.
    double score_flops_per_token(int64_t seq_len) const;

    bool operator==(const DecoderConfig&) const = default;
};

}  // namespace coeus
