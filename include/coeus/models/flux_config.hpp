// SPDX-License-Identifier: Apache-2.0
// FluxConfig: the shapes of Flux, a transformer that makes images from noise and encoded texts (Black Forest
// Labs 2024), in the form of torchtitan.
#pragma once

#include "coeus/models/config_field.hpp"
#include "coeus/models/image_batches.hpp"
#include "coeus/models/model_config.hpp"

#include <array>
#include <string>
#include <vector>

namespace coeus {

struct FluxConfig {
    std::string flavor;
    int64_t hidden_size = 3072, num_heads = 24;
    int64_t depth = 19;                ///< blocks in which text and patches have matrices of their own
    int64_t depth_single_blocks = 38;  ///< blocks in which they share them, after the others; at least one
    double mlp_ratio = 4;              ///< inner width of feed-forward layers, in hidden_size
    std::array<int64_t, 3> axes_dim = {16, 56,
                                       56};  ///< columns of a head that RoPE rotates by 0, row and column
    double theta = 10000;
    int64_t in_channels = 64;       ///< numbers of a patch: 4 times the channels of the latents
    int64_t context_in_dim = 4096;  ///< width of the encoded text (T5)
    int64_t vec_in_dim = 768;       ///< width of the pooled text (CLIP)
    bool guidance_embed = false;    ///< the strength of guidance is an input too
    double qk_norm_eps = 0x1p-23;

    // of the samples, which no weight depends on
    int64_t text_tokens = 256;
    int64_t patch_rows = 16, patch_columns = 16;

    int64_t head_dim() const { return hidden_size / num_heads; }
    int64_t mlp_hidden() const { return int64_t(double(hidden_size) * mlp_ratio); }
    int64_t patches() const { return patch_rows * patch_columns; }
    ImageSizes sizes() const {
        return {text_tokens, patches(), in_channels, context_in_dim, vec_in_dim, guidance_embed};
    }
    /// ConfigError naming the first field that is not valid.
    void validate() const;
    bool operator==(const FluxConfig&) const = default;
};

/// See for_each_field(DecoderConfig).
template <class Visit>
void for_each_field(ConfigOf<FluxConfig> auto& c, Visit&& visit) {
    using enum FieldKind;
    visit(ConfigField{.name = "flavor", .kind = identity, .is_required = true}, c.flavor);
    visit(ConfigField::size("hidden_size", nullptr), c.hidden_size);
    visit(ConfigField::size("num_heads", nullptr), c.num_heads);
    visit(ConfigField{.name = "depth", .is_required = true, .least = 0, .most = 1 << 16}, c.depth);
    visit(ConfigField{.name = "depth_single_blocks", .is_required = true, .most = 1 << 16},
          c.depth_single_blocks);
    visit(ConfigField{.name = "mlp_ratio", .is_required = true, .usual = "4"}, c.mlp_ratio);
    visit(ConfigField{.name = "axes_dim_0", .kind = constant, .least = 0}, c.axes_dim[0]);
    visit(ConfigField{.name = "axes_dim_1", .kind = constant, .least = 0}, c.axes_dim[1]);
    visit(ConfigField{.name = "axes_dim_2", .kind = constant, .least = 0}, c.axes_dim[2]);
    visit(ConfigField{.name = "theta", .kind = constant, .usual = "10000"}, c.theta);
    visit(ConfigField::size("in_channels", nullptr), c.in_channels);
    visit(ConfigField::size("context_in_dim", nullptr), c.context_in_dim);
    visit(ConfigField::size("vec_in_dim", nullptr), c.vec_in_dim);
    visit(ConfigField{.name = "guidance_embed"}, c.guidance_embed);
    visit(ConfigField{.name = "qk_norm_eps", .kind = constant, .usual = "1.1920929e-07"}, c.qk_norm_eps);
    visit(ConfigField{.name = "text_tokens", .kind = limit}, c.text_tokens);
    visit(ConfigField{.name = "patch_rows", .kind = limit}, c.patch_rows);
    visit(ConfigField{.name = "patch_columns", .kind = limit}, c.patch_columns);
}

/// torchtitan's flavours.
const std::vector<FluxConfig>& flux_flavors();
/// ConfigError naming the flavours that there are.
const FluxConfig& find_flux_flavor(const std::string& name);

/// The configuration as one of any kind of model. It must be valid.
ModelConfig flux_model(const FluxConfig& config);

}  // namespace coeus
