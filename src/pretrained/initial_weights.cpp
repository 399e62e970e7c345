// SPDX-License-Identifier: Apache-2.0
#include "coeus/pretrained/initial_weights.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/file/hub_name.hpp"
#include "coeus/file/packed_formats.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/hub/hub.hpp"
#include "coeus/hub/hub_weights.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/pretrained/pretrained.hpp"

#include <filesystem>

namespace coeus {

namespace {

// Constants of the model, such as rope_theta, that differ from those with which the weights were trained.
// Such weights can be loaded, since their shapes do not depend on these constants.
std::vector<std::string> other_constants(const DecoderConfig& model, const DecoderConfig& source) {
    std::vector<std::string> parts;
    for (const FieldDifference& difference : differences(model, source))
        if (difference.field.kind == FieldKind::constant)
            parts.push_back(fmt::format("{} is {} in this run, {} there", difference.field.name,
                                        difference.ours, difference.theirs));
    return parts;
}

// Weights of few bits are not those of the original model, so a deck must ask for them.
void check_packed_format(const Config::Checkpoint& options, const std::string& folder) {
    const PackedFormat format = read_packed_format(folder);
    if (format && !options.initial_load_in_hf_quantized)
        throw ConfigError(
            "{} is quantized ({}); set checkpoint.initial_load_in_hf_quantized = true to start from its "
            "decoded weights",
            folder, format.text());
    if (!format && options.initial_load_in_hf_quantized)
        throw ConfigError(
            "checkpoint.initial_load_in_hf_quantized = true: {} is not quantized (its config.json has no "
            "quantization_config); set checkpoint.initial_load_in_hf_quantized = false",
            folder);
}

}  // namespace

std::string initial_weights_path(const Config& config) {
    const Config::Checkpoint& options = config.checkpoint;
    return options.initial_load_in_hf && options.initial_load_path.empty() ? config.model.hf_assets_path
                                                                           : options.initial_load_path;
}

std::string unused_weights_notice(const Config& config) {
    namespace fs = std::filesystem;
    const std::string& folder = config.model.hf_assets_path;
    if (!initial_weights_path(config).empty() || !is_hub_folder(folder)) return "";
    std::error_code unreadable;
    for (const fs::path& file : entries_patiently(folder, unreadable))
        if (file.extension() == ".safetensors")
            return fmt::format(
                "{} (model.hf_assets_path) contains weights ({}), but a new run starts from random "
                "weights; to start from these, set checkpoint.initial_load_in_hf = true",
                folder, file.filename().string());
    return "";
}

void check_initial_weights(const Config& config) {
    const Config::Checkpoint& options = config.checkpoint;
    const std::string path = initial_weights_path(config);
    if (!leads_somewhere(path))
        throw ConfigError("checkpoint.initial_load_path = \"{}\": this file or folder does not exist{}", path,
                          download_hint(path));
    if (options.initial_load_in_hf != is_hub_folder(path))
        throw ConfigError(
            "checkpoint.initial_load_path = \"{}\": is {}a Hugging Face folder (one with config.json); "
            "set checkpoint.initial_load_in_hf = {}",
            path, options.initial_load_in_hf ? "not " : "", options.initial_load_in_hf ? "false" : "true");
    if (options.initial_load_in_hf) check_packed_format(options, path);
}

namespace {

// Weights are found by the names of a decoder's parameters.
const DecoderConfig& decoder_with_weights(const Config& config, const ModelConfig& model) {
    if (const DecoderConfig* decoder = model->decoder()) return *decoder;
    throw ConfigError(
        "checkpoint.{} = {}: {} is not a decoder, and starts from random weights or from a whole checkpoint "
        "of its own (checkpoint.initial_load_model_only = false)",
        config.checkpoint.initial_load_in_hf ? "initial_load_in_hf" : "initial_load_path",
        config.checkpoint.initial_load_in_hf ? "true"
                                             : fmt::format("\"{}\"", config.checkpoint.initial_load_path),
        model->name());
}

}  // namespace

void require_weights_of(const Config& config, const ModelConfig& of_run) {
    const DecoderConfig& model = decoder_with_weights(config, of_run);
    check_initial_weights(config);
    const Pretrained source(initial_weights_path(config));
    source.require_depths_of(model);
    if (const std::string other = other_shape(model, source.model()); !other.empty())
        throw ConfigError("{}: the weights are of another model: {}", source.path(), other);
    if (source.is_hub()) (void)HubWeights::open(source.path());  // throws if there are none
}

std::string load_initial_weights(const Config& config, const ModelConfig& of_run, Model& model,
                                 const Mesh& mesh) {
    const std::string path = initial_weights_path(config);
    if (path.empty()) return "";
    decoder_with_weights(config, of_run);
    Decoder& decoder = decoder_of(model);
    on_first_rank(mesh.world(), [&] { check_initial_weights(config); });
    // the deck's model came from the same config.json
    const bool is_known = config.model.flavor == "hf" && config.model.hf_assets_path == path;
    const Pretrained source(path, mesh.world(), !is_known);
    const std::vector<std::string> differ = other_constants(decoder.config(), source.model());
    if (!differ.empty() && mesh.world().rank() == 0)
        log::warn(
            "{} was trained with other constants ({}); model.flavor = \"hf\" uses the constants of a Hugging "
            "Face folder",
            source.path(), join(differ, ", "));
    source.load(decoder, mesh.world());
    return source.path();
}

}  // namespace coeus
