// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/model_config.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/decoder.hpp"
#include "coeus/models/model_counts.hpp"

#include <algorithm>
#include <mutex>

namespace coeus {

namespace {

class DecoderDescription : public ModelDescription {
public:
    explicit DecoderDescription(const DecoderConfig& config) : config_(config) {}

    std::string name() const override { return fmt::format("{} {}", config_.family, config_.flavor); }
    std::string shapes() const override;
    std::vector<std::string> notes(const BatchShape& training) const override;
    size_t segments() const override { return DecoderPart::whole(config_).segments(config_).last; }
    int64_t all_layers() const override { return config_.all_layers(); }
    int64_t layers_to_split() const override { return config_.layers; }
    int64_t layers_to_split(const ModelPart& part) const override {
        return DecoderPart::of(config_, part).layers();
    }
    std::string layers_at_end() const override { return "the layers of multi-token prediction"; }
    std::vector<int64_t> kinds_of_segments() const override;
    std::string text(const ModelPart& part) const override;

    std::vector<ModelPart> split(int stages, const SplitWeights& weights) const override {
        return segments_of(split_evenly(config_, stages, weights));
    }
    std::vector<ModelPart> split(const std::vector<std::vector<std::string>>& names) const override {
        return segments_of(split_by_names(config_, names));
    }

    std::string description() const override { return describe_model(config_); }
    std::string other_shape(const std::string& description, const std::string& source) const override {
        return coeus::other_shape(config_, model_from_description(description, source));
    }
    int64_t parameters() const override { return counts().elements.all; }
    int64_t active_parameters() const override { return counts().elements.active; }
    double flops_per_token(int64_t seq_len) const override { return counts().flops_per_token(seq_len); }
    ExpertNumbers experts() const override {
        return config_.has_experts() ? ExpertNumbers{config_.moe.experts, config_.moe.top_k}
                                     : ExpertNumbers{};
    }
    void require_countable(const BatchShape& shape) const override;
    std::string refusal(const DividingRanks& ranks) const override;

    std::unique_ptr<Model> build(const StateTypes& types, int64_t positions, const ModelPlace& place,
                                 const std::vector<ModelPart>& parts,
                                 const std::vector<Recompute>& recompute) const override {
        std::vector<DecoderPart> of_decoder;
        for (const ModelPart& part : parts) of_decoder.push_back(DecoderPart::of(config_, part));
        return std::make_unique<Decoder>(config_, types, positions, place, of_decoder, recompute);
    }
    const DecoderConfig* decoder() const override { return &config_; }

private:
    std::vector<ModelPart> segments_of(const std::vector<DecoderPart>& parts) const {
        std::vector<ModelPart> all;
        for (const DecoderPart& part : parts) all.push_back(part.segments(config_));
        return all;
    }

    // counted when somebody asks for them, since not every model that is described is valid
    const ModelCounts& counts() const {
        std::call_once(counted_, [&] { counts_ = count_model(config_); });
        return counts_;
    }

    DecoderConfig config_;
    mutable std::once_flag counted_;
    mutable ModelCounts counts_;
};

// The widths between the matrices of dense layers, and of layers with experts.
std::string widths_text(const DecoderConfig& m) {
    std::vector<std::string> parts;
    if (m.feed_forward.hidden > 0) parts.push_back(fmt::format("ffn {}", m.feed_forward.hidden));
    if (m.has_experts())
        parts.push_back(
            fmt::format("{} experts of {}, {} for each token", m.moe.experts, m.moe.hidden, m.moe.top_k));
    if (m.has_experts() && m.moe.shared_hidden > 0)
        parts.push_back(fmt::format("shared experts of {}", m.moe.shared_hidden));
    return join(parts, ", ");
}

std::string DecoderDescription::shapes() const {
    const DecoderConfig& m = config_;
    return fmt::format("dim {}, {} layers{}, {} heads, {} kv heads, {}, vocabulary {}{}", m.dim, m.layers,
                       m.mtp.layers > 0 ? fmt::format(" and {} for further tokens", m.mtp.layers) : "",
                       m.head_sizes().heads, m.head_sizes().kv_heads, widths_text(m), m.vocab,
                       m.tied ? ", tied" : "");
}

// Where chunks of attention begin if documents share a sequence.
std::vector<std::string> DecoderDescription::notes(const BatchShape& training) const {
    int64_t chunk = 0;
    for (const LayerKind& kind : config_.layer_kinds()) {
        if (const auto* a = std::get_if<GroupedAttentionConfig>(&kind.config.attention))
            chunk = std::max(chunk, a->chunk);
    }
    if (!training.masks_documents || chunk == 0 || chunk >= training.seq_len) return {};
    return {fmt::format(
        "Documents: chunks of {} tokens are counted from the first token of a sequence, as in transformers "
        "and torchtitan; a document in its middle is cut at other places than it would be alone",
        chunk)};
}

std::string DecoderDescription::text(const ModelPart& part) const {
    const DecoderPart of_decoder = DecoderPart::of(config_, part);
    const bool has_depths = of_decoder.head && config_.mtp.layers > 0;
    return of_decoder.text() + (has_depths ? fmt::format(", {} for further tokens", config_.mtp.layers) : "");
}

// Layers have the number of the first layer like them, other segments negative numbers.
std::vector<int64_t> DecoderDescription::kinds_of_segments() const {
    std::vector<int64_t> kinds(segments());
    for (size_t segment = 0; segment < kinds.size(); ++segment) kinds[segment] = -1 - int64_t(segment);
    for (const std::vector<int64_t>& group : equal_layers(config_))
        for (const int64_t layer : group) kinds[size_t(layer) + 1] = group.front();
    return kinds;
}

// Numbers that a token has in latents, and in experts and their router, and that are kept for the backward.
double latent_width(const AttentionConfig& attention) {
    const auto* a = std::get_if<LatentAttentionConfig>(&attention);
    return a ? 4 * double(a->q_rank + a->kv_rank + a->rotated_dim()) : 0;
}
double experts_width(const DecoderConfig& model) {
    const MoeConfig& m = model.moe;
    if (!model.has_experts()) return 0;
    return 4 * (double(m.top_k) * double(m.hidden + model.dim) + double(m.shared_hidden + m.experts));
}

void DecoderDescription::require_countable(const BatchShape& shape) const {
    const HeadSizes a = config_.head_sizes();
    const double head_width = double(std::max(a.head_dim, a.value_dim));
    const double widths = 8 * double(config_.dim) + 4 * double(a.heads + a.kv_heads) * head_width +
                          latent_width(config_.attention) + 4 * double(config_.feed_forward.hidden) +
                          experts_width(config_) + double(a.heads);
    const double bytes = 8 * double(shape.count()) * double(config_.all_layers()) * widths;
    if (bytes > 1e18)
        throw ConfigError(
            "training.local_batch_size x seq_len = {} x {}: the activations would take {:.1e} bytes; "
            "lower one of them",
            shape.sequences, shape.seq_len, bytes);
}

// Why so many ranks cannot divide `number` of `what`; "" if they can.
std::string refusal_of(const char* option, int64_t ranks, const char* what, int64_t number) {
    if (number % ranks == 0) return "";
    std::vector<std::string> valid;
    for (int64_t d = 1; d <= std::min<int64_t>(number, 1024); ++d)
        if (number % d == 0) valid.push_back(std::to_string(d));
    return fmt::format("parallelism.{} = {}: must divide {} = {}; valid are {}", option, ranks, what, number,
                       join(valid, ", "));
}

// For a model with nothing that these ranks could divide.
std::string refusal_of(const char* option, int64_t ranks, const std::string& lacks) {
    return ranks == 1 ? "" : fmt::format("parallelism.{} = {}: {}; set it to 1", option, ranks, lacks);
}

std::string DecoderDescription::refusal(const DividingRanks& ranks) const {
    const HeadSizes sizes = config_.head_sizes();
    std::string why = refusal_of("tensor_parallel_degree", ranks.tensor, "model.n_heads", sizes.heads);
    if (why.empty())
        why = refusal_of("tensor_parallel_degree", ranks.tensor, "model.n_kv_heads", sizes.kv_heads);
    if (why.empty() && ranks.context_by_heads)
        why = refusal_of(
            "context_parallel_degree", ranks.context,
            "the heads that are exchanged (context_parallel_rotate_method = \"heads\", and generation), "
            "model.n_kv_heads / "
            "tensor_parallel_degree",
            sizes.kv_heads / ranks.tensor);
    if (!why.empty()) return why;
    return config_.has_experts()
               ? refusal_of("expert_parallel_degree", ranks.expert, "model.moe.num_experts",
                            config_.moe.experts)
               : refusal_of("expert_parallel_degree", ranks.expert, name() + " has no experts");
}

}  // namespace

std::string ModelDescription::refusal(const DividingRanks& ranks) const {
    std::string why =
        refusal_of("tensor_parallel_degree", ranks.tensor, "ranks cannot divide the matrices of " + name());
    if (why.empty())
        why = refusal_of("context_parallel_degree", ranks.context,
                         "ranks cannot divide the sequences of " + name());
    if (why.empty()) why = refusal_of("expert_parallel_degree", ranks.expert, name() + " has no experts");
    return why;
}

ModelConfig::ModelConfig(const DecoderConfig& decoder)
    : model_(std::make_shared<DecoderDescription>(decoder)) {}

const DecoderConfig& require_decoder(const ModelConfig& model, const char* purpose) {
    if (const DecoderConfig* decoder = model->decoder()) return *decoder;
    throw ConfigError("{} is not a language model, which {} needs", model->name(), purpose);
}

}  // namespace coeus
