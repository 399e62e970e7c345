// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/flux_config.hpp"

#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"
#include "coeus/models/flux.hpp"
#include "coeus/models/model_counts.hpp"

#include <mutex>
#include <numeric>

namespace coeus {

void FluxConfig::validate() const {
    const auto refuse = [&](const char* field, const auto& value, const std::string& rule) {
        throw ConfigError("model.flux.{} = {}: {}", field, value, rule);
    };
    for_each_field(*this, [&](const ConfigField& field, const auto& value) {
        using Value = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, int64_t>) {
            if (value < field.least || value > field.most)
                refuse(field.name, value, fmt::format("must be from {} to {}", field.least, field.most));
        } else if constexpr (std::is_same_v<Value, double>) {
            if (!(value > 0 && value < 1e12))
                refuse(field.name, value, fmt::format("must be greater than 0 (usual: {})", field.usual));
        }
    });
    if (hidden_size % num_heads != 0)
        refuse("num_heads", num_heads,
               fmt::format("must divide model.flux.hidden_size = {}; the nearest valid values are {}",
                           hidden_size, divisors_near(hidden_size, num_heads, hidden_size)));
    const std::string axes = fmt::format("[{}, {}, {}]", axes_dim[0], axes_dim[1], axes_dim[2]);
    for (const int64_t dim : axes_dim)
        if (dim % 2 != 0)
            refuse("axes_dim", axes, "must be even numbers, since RoPE rotates pairs of columns");
    if (const int64_t sum = axes_dim[0] + axes_dim[1] + axes_dim[2]; sum != head_dim())
        refuse("axes_dim", axes,
               fmt::format(
                   "must add up to the width of a head, hidden_size / num_heads = {} / {} = {}, but make {}",
                   hidden_size, num_heads, head_dim(), sum));
    const double inner = double(hidden_size) * mlp_ratio;
    if (inner != double(mlp_hidden()) || inner < 1)
        refuse("mlp_ratio", mlp_ratio,
               fmt::format("times model.flux.hidden_size = {} must be a whole number", hidden_size));
    if (in_channels % 4 != 0)
        refuse("in_channels", in_channels, "must be a multiple of 4, since a patch is 2 by 2 latents");
    // by tokens and layers, in floating point, before they are multiplied
    const double width = double(hidden_size), blocks = 36 * double(depth) + 15 * double(depth_single_blocks);
    coeus::require_countable(blocks * width * width * std::max(1.0, mlp_ratio / 4));
}

const std::vector<FluxConfig>& flux_flavors() {
    static const std::vector<FluxConfig> all = {
        {.flavor = "flux-debug", .hidden_size = 1536, .num_heads = 12, .depth = 2, .depth_single_blocks = 2},
        {.flavor = "flux-dev", .text_tokens = 512},
        {.flavor = "flux-schnell"}};
    return all;
}

const FluxConfig& find_flux_flavor(const std::string& name) {
    std::vector<std::string> names;
    for (const FluxConfig& config : flux_flavors()) {
        if (config.flavor == name) return config;
        names.push_back(config.flavor);
    }
    const std::string near = nearest_name(name, names);
    throw ConfigError("model.flavor = \"{}\": flux has no such flavour; {}known are {}", name,
                      near.empty() ? "" : "did you mean \"" + near + "\"? ", join(names, ", "));
}

namespace {

class FluxDescription : public ModelDescription {
public:
    explicit FluxDescription(const FluxConfig& config) : config_(config) {}

    std::string name() const override { return "flux " + config_.flavor; }
    std::string shapes() const override;
    size_t segments() const override { return size_t(all_layers()) + 2; }
    int64_t all_layers() const override { return config_.depth + config_.depth_single_blocks; }
    int64_t layers_to_split() const override { return all_layers(); }
    int64_t layers_to_split(const ModelPart& part) const override {
        const auto end = std::min(part.last, segments() - 1), begin = std::max<size_t>(part.first, 1);
        return end > begin ? int64_t(end - begin) : 0;
    }
    std::vector<int64_t> kinds_of_segments() const override;
    std::string text(const ModelPart& part) const override;
    std::vector<ModelPart> split(int stages, const SplitWeights& weights) const override;
    std::vector<ModelPart> split(const std::vector<std::vector<std::string>>& names) const override;

    std::string description() const override;
    std::string other_shape(const std::string& description, const std::string& source) const override;
    bool attends_to_all() const override { return true; }
    std::vector<int64_t> streams() const override { return {config_.text_tokens, config_.patches()}; }
    int64_t parameters() const override;
    int64_t active_parameters() const override { return parameters(); }
    double flops_per_token(int64_t seq_len) const override;
    void require_countable(const BatchShape& shape) const override;
    std::string refusal(const DividingRanks& ranks) const override;
    std::unique_ptr<Model> build(const StateTypes& types, int64_t /*positions*/, const ModelPlace& place,
                                 const std::vector<ModelPart>& parts,
                                 const std::vector<Recompute>& recompute) const override {
        return std::make_unique<Flux>(config_, types, place, parts, recompute);
    }

private:
    std::vector<std::string> names_of_segments() const;
    FluxConfig config_;
    mutable std::once_flag counted_;
    mutable int64_t parameters_ = 0;
};

std::string FluxDescription::shapes() const {
    const FluxConfig& m = config_;
    return fmt::format(
        "hidden size {}, {} heads, {} double and {} single blocks, ffn {}, {} text tokens of {}, {} x {} "
        "patches of {}",
        m.hidden_size, m.num_heads, m.depth, m.depth_single_blocks, m.mlp_hidden(), m.text_tokens,
        m.context_in_dim, m.patch_rows, m.patch_columns, m.in_channels);
}

std::vector<std::string> FluxDescription::names_of_segments() const {
    std::vector<std::string> names = {"input"};
    for (int64_t i = 0; i < config_.depth; ++i) names.push_back(fmt::format("double_blocks.{}", i));
    for (int64_t i = 0; i < config_.depth_single_blocks; ++i)
        names.push_back(fmt::format("single_blocks.{}", i));
    names.emplace_back("final_layer");
    return names;
}

// The first single block also changes the order of rows.
std::vector<int64_t> FluxDescription::kinds_of_segments() const {
    std::vector<int64_t> kinds(segments(), 2);
    kinds.front() = -1;
    std::fill_n(kinds.begin() + 1, config_.depth, 0);
    kinds[size_t(config_.depth) + 1] = 1;
    kinds.back() = -2;
    return kinds;
}

std::string FluxDescription::text(const ModelPart& part) const {
    std::vector<std::string> modules;
    const auto add_run = [&](const char* name, int64_t before, int64_t number) {
        const int64_t first = std::max<int64_t>(0, int64_t(part.first) - before),
                      last = std::min(number, int64_t(part.last) - before) - 1;
        if (first == last) modules.push_back(fmt::format("{}.{}", name, first));
        if (first < last) modules.push_back(fmt::format("{0}.{1} to {0}.{2}", name, first, last));
    };
    if (part.first == 0) modules.emplace_back("input");
    add_run("double_blocks", 1, config_.depth);
    add_run("single_blocks", 1 + config_.depth, config_.depth_single_blocks);
    if (part.last == segments()) modules.emplace_back("final_layer");
    return join(modules, ", ");
}

std::vector<ModelPart> FluxDescription::split(int stages, const SplitWeights& weights) const {
    std::vector<ModelPart> parts;
    size_t next = 1;
    for (const int64_t layers :
         divide_layers(all_layers(), "model.flux.depth + model.flux.depth_single_blocks", stages, weights)) {
        parts.push_back({next, next + size_t(layers)});
        next += size_t(layers);
    }
    parts.front().first = 0;
    parts.back().last = segments();
    return parts;
}

std::vector<ModelPart> FluxDescription::split(const std::vector<std::vector<std::string>>& names) const {
    std::string doubles;
    if (config_.depth > 0) doubles = fmt::format("double_blocks.0 to double_blocks.{}, ", config_.depth - 1);
    return split_modules(names_of_segments(),
                         fmt::format("input, {}single_blocks.0 to single_blocks.{}, final_layer", doubles,
                                     config_.depth_single_blocks - 1),
                         names);
}

std::string FluxDescription::description() const {
    Json json = Json::object();
    json.set("family", "flux");
    for_each_field(config_,
                   [&](const ConfigField& field, const auto& value) { json.set(field.name, value); });
    return json.text();
}

FluxConfig flux_from_description(const std::string& description, const std::string& source) {
    const JsonDocument document = JsonDocument::parse(description, source + " (model)");
    const JsonView json = document.root();
    if (const JsonView family = json["family"]; family.string() != "flux") family.reject("must be \"flux\"");
    FluxConfig config;
    for_each_field(config, [&]<class Value>(const ConfigField& field, Value& value) {
        if (!field.is_required && !json.contains(field.name)) return;
        const JsonView view = json[field.name];
        if constexpr (std::is_same_v<Value, std::string>)
            value = view.string();
        else if constexpr (std::is_same_v<Value, bool>)
            value = view.boolean();
        else if constexpr (std::is_same_v<Value, double>)
            value = view.number();
        else
            value = view.integer();
    });
    return config;
}

// What has the same shapes may differ in what no weight depends on.
std::string FluxDescription::other_shape(const std::string& description, const std::string& source) const {
    const FluxConfig theirs = flux_from_description(description, source);
    std::vector<std::string> ours;
    for_each_field(config_,
                   [&](const ConfigField&, const auto& value) { ours.push_back(fmt::format("{}", value)); });
    std::string difference;
    size_t number = 0;
    for_each_field(theirs, [&](const ConfigField& field, const auto& value) {
        const std::string own = ours[number++], other = fmt::format("{}", value);
        if (difference.empty() && field.kind == FieldKind::shape && own != other)
            difference = fmt::format("{} is {} in this run, {} there", field.name, own, other);
    });
    return difference;
}

int64_t FluxDescription::parameters() const {
    std::call_once(counted_, [&] {
        parameters_ = Flux(config_, {}, {}, {{0, segments()}}).parameters().count();
    });
    return parameters_;
}

// Products of tokens, and those of each sample, as those of a token.
double FluxDescription::flops_per_token(int64_t seq_len) const {
    const FluxConfig& m = config_;
    const double h = double(m.hidden_size), doubles = double(m.depth),
                 singles = double(m.depth_single_blocks), blocks = doubles + singles,
                 tokens = double(seq_len), samples = tokens / double(m.sizes().tokens());
    const double of_block = (4 + 2 * m.mlp_ratio) * h * h;
    const double of_ends =
        2 * double(m.patches() * m.in_channels) * h + double(m.text_tokens * m.context_in_dim) * h;
    const double of_sample =
        (12 * doubles + 3 * singles + 2) * h * h +
        double(time_features + m.vec_in_dim + (m.guidance_embed ? time_features : 0)) * h +
        (m.guidance_embed ? 3 : 2) * h * h;
    const double products = tokens * of_block * blocks + samples * (of_ends + of_sample);
    const double scores = 12 * h * double(m.sizes().tokens()) * tokens * blocks;
    return (6 * products + scores) / tokens;
}

void FluxDescription::require_countable(const BatchShape& shape) const {
    const double widths = double(config_.hidden_size) * (16 + 4 * config_.mlp_ratio);
    const double bytes = 8 * double(shape.count()) * double(all_layers()) * widths;
    if (bytes > 1e18)
        throw ConfigError(
            "training.local_batch_size = {}: the activations of samples of {} tokens would take {:.1e} "
            "bytes; lower it",
            shape.sequences, shape.seq_len, bytes);
}

std::string FluxDescription::refusal(const DividingRanks& ranks) const {
    if (ranks.tensor != 1)
        return fmt::format(
            "parallelism.tensor_parallel_degree = {}: flux has no tensor parallelism; set it to 1, and use "
            "data_parallel_shard_degree or context_parallel_degree",
            ranks.tensor);
    const int64_t common = std::gcd(config_.text_tokens, config_.patches()),
                  valid = ranks.context_by_heads ? std::gcd(common, config_.num_heads) : common;
    if (valid % ranks.context != 0)
        return fmt::format(
            "parallelism.context_parallel_degree = {}: must divide the {} tokens of text and the {} patches "
            "of a "
            "sample{}; the nearest valid values are {}",
            ranks.context, config_.text_tokens, config_.patches(),
            ranks.context_by_heads
                ? fmt::format(", and the {} heads (context_parallel_rotate_method = \"heads\")",
                              config_.num_heads)
                : "",
            divisors_near(valid, ranks.context, valid));
    return ModelDescription::refusal({.expert = ranks.expert});
}

}  // namespace

ModelConfig flux_model(const FluxConfig& config) {
    config.validate();
    return ModelConfig(std::make_shared<FluxDescription>(config));
}

}  // namespace coeus
