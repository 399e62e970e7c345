// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/hub_names.hpp"

#include "coeus/base/error.hpp"
#include "coeus/models/parts/feed_forward.hpp"
#include "coeus/models/parts/grouped_attention.hpp"
#include "coeus/models/parts/latent_attention.hpp"
#include "coeus/models/parts/moe.hpp"
#include "coeus/models/parts/mtp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>

namespace coeus {

namespace {

constexpr std::array names_of_norms = {HubName{"attention_norm.weight", "input_layernorm.weight"},
                                       HubName{"ffn_norm.weight", "post_attention_layernorm.weight"}};
// With norms after the sublayers, or around them (OLMo 2, Gemma).
constexpr std::array names_of_later_norms = {
    HubName{"attention_norm.weight", "input_layernorm.weight"},
    HubName{"post_attention_norm.weight", "post_attention_layernorm.weight"},
    HubName{"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    HubName{"post_ffn_norm.weight", "post_feedforward_layernorm.weight"}};

}  // namespace

std::string hub_name_in(std::span<const HubName> names, const std::string& parameter) {
    const std::string layers = "layers.";
    if (!parameter.starts_with(layers)) return "";
    const size_t dot = parameter.find('.', layers.size());
    if (dot == std::string::npos) return "";
    const std::string_view in_layer = std::string_view(parameter).substr(dot + 1);
    const auto found = std::ranges::find(names, in_layer, &HubName::ours);
    return found == names.end() ? "" : "model." + parameter.substr(0, dot + 1) + found->theirs;
}

std::vector<HubPlace> usual_hub_places(const std::string& parameter, const Shape& shape,
                                       const DecoderConfig& config) {
    if (auto of_experts = usual_expert_places(parameter, shape)) return *std::move(of_experts);
    if (config.norm_placement != NormPlacement::before)
        if (const std::string name = hub_name_in(names_of_later_norms, parameter); !name.empty())
            return {HubPlace::whole(name, shape)};
    return {HubPlace::whole(usual_hub_name(parameter), shape)};
}

std::vector<HubPlace> hub_places_by(std::span<const HubName> own, const std::string& parameter,
                                    const Shape& shape, const DecoderConfig& config) {
    const std::string name = hub_name_in(own, parameter);
    return name.empty() ? usual_hub_places(parameter, shape, config)
                        : std::vector{HubPlace::whole(name, shape)};
}

std::vector<HubPlace> stacked_hub_places(const std::string& name, const Shape& shape, int64_t all_rows,
                                         int64_t first) {
    const int rank = shape.rank;
    const int64_t rows = shape[rank - 2], cols = shape[rank - 1];
    Shape whole = shape;
    whole[rank - 2] = all_rows;
    std::vector<HubPlace> places;
    for (int64_t e = 0; e < shape.rows() / rows; ++e)
        places.push_back({.name = name,
                          .shape = whole,
                          .first_row = e * rows,
                          .rows = rows,
                          .offset = (e * all_rows + first) * cols,
                          .row_stride = cols});
    return places;
}

HubStack qkv_hub_stack(const DecoderConfig& config, const char* theirs) {
    const GroupedAttentionConfig& a = config.grouped();
    return {theirs,
            {{"attention.wq.weight", a.query_width()},
             {"attention.wk.weight", a.key_width()},
             {"attention.wv.weight", a.value_width()}}};
}

HubStack gate_up_hub_stack(const DecoderConfig& config, const char* theirs) {
    const int64_t hidden = config.feed_forward.hidden;
    return {theirs, {{"feed_forward.w1.weight", hidden}, {"feed_forward.w3.weight", hidden}}};
}

std::vector<HubPlace> places_in(std::span<const HubStack> stacks, const std::string& parameter,
                                const Shape& shape) {
    for (const HubStack& stack : stacks) {
        int64_t rows = 0, first = 0;
        std::string name;
        for (const HubStack::Part& part : stack.parts) {
            if (std::string here = hub_name_in(std::array{HubName{part.ours, stack.theirs}}, parameter);
                !here.empty()) {
                name = std::move(here);
                first = rows;
            }
            rows += part.rows;
        }
        if (!name.empty()) return stacked_hub_places(name, shape, rows, first);
    }
    return {};
}

std::vector<HubPlace> transposed_hub_places(const std::string& name, const Shape& shape, int64_t columns,
                                            int64_t first) {
    const int64_t rows = shape[1], cols = shape[2];
    std::vector<HubPlace> places;
    for (int64_t e = 0; e < shape[0]; ++e)
        places.push_back({.name = name,
                          .shape = {shape[0], cols, columns},
                          .first_row = e * rows,
                          .rows = rows,
                          .offset = e * cols * columns + first,
                          .row_stride = 1,
                          .col_stride = columns});
    return places;
}

std::string usual_hub_name(const std::string& parameter) {
    if (parameter == "tok_embeddings.weight") return "model.embed_tokens.weight";
    if (parameter == "norm.weight") return "model.norm.weight";
    if (parameter == "output.weight") return "lm_head.weight";
    for (const std::span<const HubName> names :
         {std::span<const HubName>(names_of_norms), grouped_attention_hub_names(), feed_forward_hub_names(),
          moe_hub_names()})
        if (std::string name = hub_name_in(names, parameter); !name.empty()) return name;
    throw LogicError("no Hugging Face name for " + parameter);
}

bool usually_ignored_in_hub(const std::string& tensor, const DecoderConfig& config) {
    return tensor.ends_with("rotary_emb.inv_freq") || usually_copied_in_hub(tensor, config);
}

std::optional<HubCopy> usually_copied_in_hub(const std::string& tensor, const DecoderConfig& config) {
    if (!config.tied || tensor != "lm_head.weight") return std::nullopt;
    return HubCopy{"model.embed_tokens.weight",
                   "to use both, set tie_word_embeddings to false in config.json (or, for a run, "
                   "model.tied_embeddings = false)"};
}

namespace {

constexpr std::array names_of_balance = {HubName{"moe.expert_bias", "mlp.gate.e_score_correction_bias"}};

// Layers of multi-token prediction are after the last layer there.
std::string layer_name(const std::string& parameter, const DecoderConfig& config) {
    const std::string mtp_layers = "mtp_layers.";
    if (!parameter.starts_with(mtp_layers)) return parameter;
    const size_t dot = parameter.find('.', mtp_layers.size());
    const int64_t depth = std::stoll(parameter.substr(mtp_layers.size(), dot - mtp_layers.size()));
    return fmt::format("layers.{}{}", config.layers + depth, parameter.substr(dot));
}

// The number of a tensor's layer; -1: none.
int64_t layer_of(const std::string& tensor) {
    const std::string layers = "model.layers.";
    int64_t layer = -1;
    if (tensor.starts_with(layers))
        std::from_chars(tensor.data() + layers.size(), tensor.data() + tensor.size(), layer);
    return layer;
}

}  // namespace

std::vector<HubPlace> deepseek_hub_places(const std::string& parameter, const Shape& shape,
                                          const DecoderConfig& config) {
    const std::string in_layer = layer_name(parameter, config);
    if (config.moe.score == ScoreFunction::softmax && !config.moe.keeps_bias &&
        in_layer.ends_with(".moe.expert_bias"))
        return {};
    const std::span<const HubName> latents =
        config.is_latent() ? latent_attention_hub_names() : std::span<const HubName>();
    for (const std::span<const HubName> known :
         {std::span<const HubName>(names_of_balance), latents, mtp_hub_names()})
        if (const std::string found = hub_name_in(known, in_layer); !found.empty()) {
            HubPlace place = HubPlace::whole(found, shape);
            place.keeps_f32 = in_layer.ends_with(".moe.expert_bias");  // the choice of experts depends on it
            return {place};
        }
    return usual_hub_places(in_layer, shape, config);
}

std::optional<HubCopy> deepseek_hub_copy_of(const std::string& tensor, const DecoderConfig& config) {
    const int64_t layer = layer_of(tensor);
    const char* otherwise = "to leave out the layer, set model.num_mtp_layers = 0";
    if (layer >= config.layers && layer < config.all_layers()) {
        if (tensor.ends_with(".embed_tokens.weight")) return HubCopy{"model.embed_tokens.weight", otherwise};
        if (tensor.ends_with(".shared_head.head.weight"))
            return HubCopy{config.tied ? "model.embed_tokens.weight" : "lm_head.weight", otherwise};
    }
    return usually_copied_in_hub(tensor, config);
}

bool deepseek_hub_ignores(const std::string& tensor, const DecoderConfig& config) {
    return layer_of(tensor) >= config.all_layers() || deepseek_hub_copy_of(tensor, config) ||
           usually_ignored_in_hub(tensor, config);
}

}  // namespace coeus
