// SPDX-License-Identifier: Apache-2.0
// Shapes and constants of a decoder-only model, and numbers computed from them.
#pragma once

#include "coeus/models/config_field.hpp"
#include "coeus/models/layer_choice.hpp"
#include "coeus/models/layer_config.hpp"
#include "coeus/models/parts/mtp.hpp"
#include "coeus/models/parts/rope.hpp"

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace coeus {

/// The RMSNorms of a sublayer f: h + f(norm(h)), h + norm(f(h)) (OLMo 2), or h + norm(f(norm(h)))
/// (Gemma).
enum class NormPlacement : uint8_t { before, after, around };

/// rms_norm; layer_norm with a weight; np_layer_norm without parameters. None has a bias.
enum class NormType : uint8_t { rms_norm, layer_norm, np_layer_norm };

/// Which initial values of torchtitan a model has, if torchtitan has changed those of its family: of 2025,
/// when its decks were in TOML, or of 2026.
enum class InitialValues : uint8_t { of_2025, of_2026 };

constexpr auto names_of(NormType) {
    return std::array{EnumName<NormType>{"rmsnorm", NormType::rms_norm},
                      EnumName<NormType>{"fused_rmsnorm", NormType::rms_norm},
                      EnumName<NormType>{"layernorm", NormType::layer_norm},
                      EnumName<NormType>{"np_layernorm", NormType::np_layer_norm}};
}
constexpr auto names_of(NormPlacement) {
    return std::array{EnumName<NormPlacement>{"before", NormPlacement::before},
                      EnumName<NormPlacement>{"after", NormPlacement::after},
                      EnumName<NormPlacement>{"around", NormPlacement::around}};
}
constexpr auto names_of(InitialValues) {
    return std::array{EnumName<InitialValues>{"2026", InitialValues::of_2026},
                      EnumName<InitialValues>{"2025", InitialValues::of_2025}};
}

/// The parts of a decoder's loss: their numbers in StepScalars::losses.
namespace decoder_loss {
inline constexpr size_t balance = 0;  ///< balances the experts within each sequence
inline constexpr size_t mtp = 1;      ///< of tokens further ahead
inline constexpr size_t z = 2;        ///< keeps log sum exp of the logits of the next token near 0
}  // namespace decoder_loss

/// Layers that are alike, those of multi-token prediction among them.
struct LayerKind {
    LayerConfig config;
    std::vector<int64_t> layers;  ///< their numbers
    int64_t count() const { return int64_t(layers.size()); }
};

/// Each field is named once, in for_each_field (config_fields.hpp).
struct DecoderConfig {
    std::string family;  ///< "llama3"
    std::string flavor;  ///< "8B"
    int64_t dim = 0, layers = 0, vocab = 0;
    AttentionConfig attention;  ///< what all layers share
    LayerChoice windowed;       ///< the layers in which the window applies; others attend to all tokens
    /// The layers without RoPE. They attend to all chunks, and have the temperature; the others have it only
    /// if it is everywhere.
    LayerChoice without_rope = {.period = 0};
    FeedForwardConfig feed_forward;        ///< of dense layers
    MoeConfig moe;                         ///< of the others
    LayerChoice moe_layers;                ///< the layers with experts, if moe has any; the others are dense
    std::optional<FfnRule> ffn_rule = {};  ///< the rule for the feed-forward width; not set: a given number
    RopeConfig rope;
    WindowRope window_rope;  ///< of the layers in `windowed`, also if sliding_window is 0
    double norm_eps = 1e-5;
    NormType norm_type = NormType::rms_norm;
    NormPlacement norm_placement = NormPlacement::before;
    bool norm_offset = false;  ///< RMSNorms, also those of heads and latents, multiply by 1 + weight
    bool tied = false;         ///< the output projection is the embedding table
    /// Factors of the rows of the embedding, of what each sublayer adds to the hidden state, and of the
    /// logits (Yang et al. 2022, muP; Gemma, Granite, Cohere). The hidden state h is kept as h /
    /// residual_scale, to which sublayers add their results as they are. All that reads it are norms, which
    /// give the same for it if their epsilon is norm_eps / residual_scale^2 (hidden_eps()).
    double embedding_scale = 1, residual_scale = 1, logits_scale = 1;
    bool parallel_block = false;  ///< attention and feed-forward layer take the output of one norm
    int64_t max_seq_len = 131072;
    MtpConfig mtp;
    double z_loss_weight = 0;  ///< 0: no z-loss
    InitialValues initial_values = InitialValues::of_2026;

    double hidden_eps() const { return norm_eps / (residual_scale * residual_scale); }
    HeadSizes head_sizes() const { return head_sizes_of(attention); }
    bool is_latent() const { return std::holds_alternative<LatentAttentionConfig>(attention); }
    /// The attention, which must be of this kind: std::bad_variant_access.
    GroupedAttentionConfig& grouped() { return std::get<GroupedAttentionConfig>(attention); }
    const GroupedAttentionConfig& grouped() const { return std::get<GroupedAttentionConfig>(attention); }
    LatentAttentionConfig& latent() { return std::get<LatentAttentionConfig>(attention); }
    const LatentAttentionConfig& latent() const { return std::get<LatentAttentionConfig>(attention); }

    /// The RoPEs of the model: that of the layers in general, and that of windowed layers if it is another.
    std::vector<RopeConfig> ropes() const;
    /// The configuration of a layer. The numbers from `layers` on are those of multi-token prediction.
    LayerConfig layer(int64_t number) const;
    /// The kinds of layers, in the order of their first layers.
    std::vector<LayerKind> layer_kinds() const;
    /// All layers, with those of multi-token prediction.
    int64_t all_layers() const { return layers + mtp.layers; }
    /// True if the last pipeline stage needs the embedding table too.
    bool embeds_at_end() const { return tied || mtp.layers > 0; }
    /// The number of a layer among those with experts.
    int64_t moe_row(int64_t number) const;
    /// The numbers of the layers with experts.
    std::vector<int64_t> layers_with_experts() const;
    /// How many there are.
    int64_t moe_rows() const { return moe_row(all_layers()); }
    /// True if a layer has experts: `moe` alone may describe experts that no layer has.
    bool has_experts() const { return moe_rows() > 0; }
    /// ConfigError naming the field, the rule and the nearest valid value.
    void validate() const;
    /// Each of these counts the whole model: see ModelCounts (model_counts.hpp).
    int64_t parameters() const;
    int64_t active_parameters() const;
    double flops_per_token(int64_t seq_len) const;
    double score_flops_per_token(int64_t seq_len) const;

    bool operator==(const DecoderConfig&) const = default;
};

}  // namespace coeus
