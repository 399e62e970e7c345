// SPDX-License-Identifier: Apache-2.0
#include "coeus/io/hub.hpp"

#include "coeus/base/text.hpp"
#include "coeus/device/host_rows.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

namespace coeus {

namespace fs = std::filesystem;

bool is_hub_folder(const std::string& path) {
    std::error_code status;
    return fs::is_regular_file(fs::path(path) / "config.json", status);
}

namespace {

std::string read_architecture(const JsonView& root, const std::vector<std::string>& known) {
    const JsonView list = root["architectures"];
    const std::vector<std::string> names = list.strings();
    if (names.size() != 1) list.reject("must name one architecture");
    if (std::find(known.begin(), known.end(), names[0]) == known.end())
        throw ConfigError("{}: architecture {} is not built yet; built are {}", root.file(), names[0],
                          join(known, ", "));
    return names[0];
}

int64_t positive(const JsonView& root, const char* key) {
    const JsonView value = root[key];
    if (value.integer() < 1) value.reject("must be at least 1");
    return value.integer();
}

int64_t positive(const JsonView& root, const char* key, int64_t otherwise) {
    return root.contains(key) ? positive(root, key) : otherwise;
}

void check_features(const JsonView& root) {
    for (const char* bias : {"attention_bias", "mlp_bias"})
        if (root.boolean(bias, false)) root[bias].reject("must be false (biases are not built yet)");
    if (root.string("hidden_act", "silu") != "silu")
        root["hidden_act"].reject("must be \"silu\" (others are not built yet)");
}

/// The scaling of a rope_parameters or rope_scaling object.
std::optional<HubConfig::RopeScaling> read_scaling(const JsonView& rope) {
    const std::string type = rope.string("rope_type", rope.string("type", "default"));
    if (type == "default") return std::nullopt;
    if (type != "llama3")
        throw ConfigError("{}: {} of type \"{}\" is not built yet; built are \"default\" and \"llama3\"",
                          rope.file(), rope.path(), type);
    HubConfig::RopeScaling scaling = {.factor = rope.number("factor"),
                                      .low_freq_factor = rope.number("low_freq_factor"),
                                      .high_freq_factor = rope.number("high_freq_factor"),
                                      .original_positions = rope.number("original_max_position_embeddings")};
    if (!(scaling.factor >= 1)) rope["factor"].reject("must be at least 1");
    if (!(scaling.low_freq_factor > 0)) rope["low_freq_factor"].reject("must be greater than 0");
    if (!(scaling.high_freq_factor > scaling.low_freq_factor))
        rope["high_freq_factor"].reject("must be greater than low_freq_factor");
    if (!(scaling.original_positions >= 1))
        rope["original_max_position_embeddings"].reject("must be at least 1");
    return scaling;
}

}  // namespace

HubConfig read_hub_config(const std::string& folder, const std::vector<std::string>& architectures) {
    const fs::path file = fs::path(folder) / "config.json";
    if (!is_hub_folder(folder)) throw ConfigError("{}: there is no such file", file.string());
    const JsonDocument document = JsonDocument::read(file);
    const JsonView root = document.root();
    HubConfig config;
    config.architecture = read_architecture(root, architectures);
    check_features(root);
    config.hidden_size = positive(root, "hidden_size");
    config.layers = positive(root, "num_hidden_layers");
    config.heads = positive(root, "num_attention_heads");
    config.kv_heads = positive(root, "num_key_value_heads", config.heads);
    config.head_dim = positive(root, "head_dim", config.hidden_size / config.heads);
    config.intermediate_size = positive(root, "intermediate_size");
    config.vocab_size = positive(root, "vocab_size");
    config.max_positions = positive(root, "max_position_embeddings", 2048);
    config.rms_norm_eps = root.number("rms_norm_eps", 1e-6);
    config.tied = root.boolean("tie_word_embeddings", false);
    config.rope_theta = root.number("rope_theta", 10000);
    if (const auto rope = root.find("rope_parameters")) {
        config.rope_theta = rope->number("rope_theta", config.rope_theta);
        config.rope_scaling = read_scaling(*rope);
    } else if (const auto scaling = root.find("rope_scaling")) {
        config.rope_scaling = read_scaling(*scaling);
    }
    return config;
}

namespace {

/// A tensor that is part of no model: constants that old files carry, and a head that is the embedding's
/// table.
bool is_ignored(const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
}

}  // namespace

void read_hub_tensor(const std::string& folder, const Safetensors& weights, const HubTensor& tensor) {
    const Safetensors::Entry& entry = weights.entry(tensor.name);
    if (entry.shape != tensor.shape)
        throw ConfigError("{} is of another model: {} is {} in the file, {} in this model", folder,
                          tensor.name, entry.shape.text(), tensor.shape.text());
    if (!tensor.local) return;
    if (!can_convert(tensor.local.dtype, entry.dtype))
        throw ConfigError("{}: tensor '{}' holds {}, where a floating type is expected", folder, tensor.name,
                          name_of(entry.dtype));
    const int64_t cols = tensor.shape.cols(), bytes = size_of(entry.dtype);
    const int64_t head_dim = tensor.rotated_heads > 0 ? tensor.shape.rows() / tensor.rotated_heads : 0;
    write_rows(*tensor.device, tensor.local, [&](Tensor rows, int64_t first) {
        for (int64_t r = 0; r < rows.rows(); ++r) {
            const int64_t ours = tensor.first_row + first + r;
            const int64_t theirs = head_dim > 0 ? half_split_row(ours, head_dim) : ours;
            convert_elements(rows.slice_rows(r, 1).data, rows.dtype,
                             entry.data + (theirs * cols + tensor.first_col) * bytes, entry.dtype,
                             rows.cols());
        }
    });
}

void check_hub_weights(const std::string& folder, const Safetensors& weights,
                       const std::vector<HubTensor>& tensors) {
    std::set<std::string> taken;
    for (const HubTensor& tensor : tensors) taken.insert(tensor.name);
    for (const std::string& name : weights.names())
        if (!taken.contains(name) && !is_ignored(name))
            throw ConfigError("{} is of another model: it has '{}', which no parameter of this model takes",
                              folder, name);
}

void load_hub_weights(const std::string& folder, const std::vector<HubTensor>& tensors) {
    const Safetensors weights = Safetensors::open(folder);
    for (const HubTensor& tensor : tensors) read_hub_tensor(folder, weights, tensor);
    check_hub_weights(folder, weights, tensors);
}

}  // namespace coeus
