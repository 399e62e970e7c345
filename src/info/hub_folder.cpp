// SPDX-License-Identifier: Apache-2.0
// coeus info for a Hugging Face folder: the model of config.json, whether its weights are complete, and its
// tokenizer.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/file/hub_json.hpp"
#include "coeus/hub/hub.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace coeus::info {

namespace {

std::string architecture_of(const std::string& folder) {
    const JsonDocument config = read_hub_config(folder);
    const std::optional<JsonView> list = config.root().find("architectures");
    if (list && list->size() > 1) return join(list->strings(), ", ");
    return hub_architecture(model_families(), config.root());
}

// What says that this is only a part of the folder's model.
std::string about_whole(const std::string& folder, const std::string& architecture) {
    const JsonDocument config = read_hub_config(folder);
    const std::optional<JsonView> list = config.root().find("architectures");
    if (!list || list->size() != 1 || list->strings().front() == architecture) return "";
    return fmt::format(" (the text model of {})", list->strings().front());
}

bool is_built(const std::string& architecture) {
    const std::vector<std::string> built = hub_architectures();
    return std::ranges::find(built, architecture) != built.end();
}

// The first three names.
std::string some_of(const std::vector<std::string>& names) {
    std::vector<std::string> few(names.begin(), names.begin() + long(std::min<size_t>(3, names.size())));
    if (names.size() > few.size()) few.emplace_back("...");
    return join(few, ", ");
}

// Quantized tensors may have finite codes and scales, and yet elements that are not finite.
void verify_packed(const DecoderConfig& model, const HubWeights& weights) {
    std::map<std::string, HubPlace> places;
    for (const HubTensor& tensor : hub_tensors(model))
        for (const HubPlace& place : tensor.places)
            if (weights.stored_as(place.name).size() > 1) places.emplace(place.name, place);
    std::vector<float> piece;
    for (const auto& [name, place] : places) {
        const HubElements elements = weights.elements(place);
        constexpr int64_t most = 1 << 16;
        const int64_t count = place.shape.count();
        for (int64_t first = 0; first < count; first += most) {
            piece.resize(size_t(std::min(most, count - first)));
            elements.read(piece.data(), Dtype::f32, first, int64_t(piece.size()));
            const auto bad = std::ranges::find_if(piece, [](float value) { return !std::isfinite(value); });
            if (bad != piece.end())
                throw ConfigError("{}: tensor '{}' has an element that is not finite, in {}",
                                  weights.folder(), weights.stored_as(name).front(),
                                  elements.position(first + (bad - piece.begin())));
        }
    }
}

// Compares the weights with those that the model of config.json has.
void check_complete(const DecoderConfig& model, const HubWeights& weights) {
    const std::string& folder = weights.folder();
    if (weights.packed_format()) entry("quantization", weights.packed_format().text());
    std::vector<std::string> missing, wrong;
    std::map<std::string, HubPlace> expected;
    for (const HubTensor& tensor : hub_tensors(model))
        for (const HubPlace& place : tensor.places) expected.emplace(place.name, place);
    for (const auto& [name, place] : expected) {
        const std::string stored = weights.name_in_files(name);
        if (!weights.has(name))
            missing.push_back(stored);
        else if (weights.files().has(stored) && weights.files().entry(stored).shape != place.shape)
            wrong.push_back(fmt::format("{} is {}, not {}", stored,
                                        weights.files().entry(stored).shape.text(), place.shape.text()));
    }
    if (!missing.empty())
        throw ConfigError("{} is not complete: config.json requires {} tensors, but {} are missing: {}",
                          folder, expected.size(), missing.size(), some_of(missing));
    if (!wrong.empty())
        throw ConfigError("{}: the weights do not fit the model of config.json: {}", folder, some_of(wrong));
    for (const auto& [name, place] : expected) weights.elements(place);  // throws if its scales do not fit it
    entry("complete", fmt::format("yes: all {} tensors that config.json requires exist", expected.size()));
    if (const int64_t others = weights.count_others(); others > 0)
        entry("ignored", fmt::format("{} tensors do not belong to the text model", others));
}

}  // namespace

void show_hub_folder(const std::string& folder, const Options& options) {
    const std::string architecture = architecture_of(folder);
    const bool built = is_built(architecture);
    print("{}: Hugging Face folder\n", folder);
    entry("architecture", architecture + (built ? about_whole(folder, architecture)
                                                : " (not implemented yet: Coeus cannot train or run it)"));
    std::optional<DecoderConfig> model;
    if (built) {
        const HubModel read = read_hub_model(folder);
        model = read.config;
        entry("model", describe_model(*model));
        entry("parameters", with_commas(model->parameters()));
        if (!read.unknown_keys.empty())
            entry("unknown keys",
                  fmt::format("config.json: Coeus ignores {}", join(read.unknown_keys, ", ")));
        if (const std::string about = read.about_not_applied(); !about.empty())
            entry("not applied", "config.json: " + about);
    }
    if (!Safetensors::is_at(folder)) {
        entry("weights", "none, only shapes");
    } else {
        const Safetensors weights = Safetensors::open(folder);
        list_tensors(weights);
        std::fflush(stdout);
        if (model) {
            const int64_t depths = depths_in(folder, *model);
            if (depths < model->mtp.layers)
                entry("left out",
                      fmt::format("{} of {} layers of multi-token prediction, which have no tensors",
                                  model->mtp.layers - depths, model->mtp.layers));
            model->mtp.layers = depths;
            check_complete(*model, HubWeights::open(folder));
        }
        if (options.verify) {
            if (model) {
                const HubWeights of_model = HubWeights::open(folder);
                verify_packed(*model, of_model);
                check_hub_copies(of_model, hub_tensors(*model), hub_copies(*model));
            }
            verify_tensors(folder, weights);
        }
    }
    if (Tokenizer::is_at(folder)) show_tokenizer(folder, options);
}

}  // namespace coeus::info
