// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/stage_split.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>

namespace coeus {

std::vector<int64_t> divide_layers(int64_t layers, const char* what, int stages,
                                   const SplitWeights& weights) {
    const int64_t all = layers + weights.embedding + weights.head;
    if (stages > all)
        throw ConfigError(
            "the pipeline has {} stages, but {} = {} with "
            "parallelism.pipeline_parallel_first_stage_less_layers = {} and "
            "pipeline_parallel_last_stage_less_layers = {} can be divided into at most {}",
            stages, what, layers, weights.embedding, weights.head, all);
    const int64_t least = all / stages, more = all % stages;
    const auto refuse = [&](const char* option, int64_t weight, int64_t most) {
        throw ConfigError(
            "parallelism.{} = {}: with {} stages, a stage has room for a weight of {} layers; the nearest "
            "valid value is {}",
            option, weight, stages, most, most);
    };
    if (stages > 1 && weights.embedding > least)
        refuse("pipeline_parallel_first_stage_less_layers", weights.embedding, least);
    if (stages > 1 && weights.head > least)
        refuse("pipeline_parallel_last_stage_less_layers", weights.head, least);
    std::vector<int64_t> numbers;
    for (int stage = 0; stage < stages; ++stage) numbers.push_back(least + (stage < more ? 1 : 0));
    numbers.front() -= weights.embedding;
    numbers.back() -= weights.head;
    return numbers;
}

std::vector<DecoderPart> split_evenly(const DecoderConfig& config, int stages, const SplitWeights& weights) {
    std::vector<DecoderPart> parts;
    int64_t layer = 0;
    for (const int64_t layers : divide_layers(config.layers, "model.n_layers", stages, weights)) {
        parts.push_back({.first_layer = layer, .last_layer = layer + layers});
        layer += layers;
    }
    parts.front().embedding = parts.back().head = true;
    return parts;
}

namespace {

constexpr const char* option = "parallelism.module_fqns_per_model_part";

[[noreturn]] void refuse_unknown(const std::vector<std::string>& modules, const std::string& known,
                                 size_t stage, const std::string& name) {
    const std::string near = nearest_name(name, modules);
    throw ConfigError("{}: stage {}: \"{}\" is not a module{}; the modules are {}", option, stage, name,
                      near.empty() ? "" : "; did you mean \"" + near + "\"?", known);
}

}  // namespace

std::vector<ModelPart> split_modules(const std::vector<std::string>& modules, const std::string& known,
                                     const std::vector<std::vector<std::string>>& lists,
                                     FunctionRef<void(size_t stage, size_t first, size_t module)> check) {
    std::vector<ModelPart> parts;
    size_t next = 0;
    for (size_t stage = 0; stage < lists.size(); ++stage) {
        if (lists[stage].empty()) throw ConfigError("{}: stage {} has no modules", option, stage);
        const size_t first = next;
        for (const std::string& name : lists[stage]) {
            if (std::ranges::find(modules, name) == modules.end())
                refuse_unknown(modules, known, stage, name);
            if (next == modules.size() || name != modules[next])
                throw ConfigError(
                    "{}: stage {}: \"{}\" is listed where {} is expected; every module must be listed once, "
                    "in the order of the model",
                    option, stage, name, next == modules.size() ? "the end" : "\"" + modules[next] + "\"");
            check(stage, first, next++);
        }
        parts.push_back({first, next});
    }
    if (next < modules.size()) throw ConfigError("{}: \"{}\" is in no stage", option, modules[next]);
    return parts;
}

namespace {

enum class ModuleKind : uint8_t { embedding, layer, norm, output, mtp_layer };

struct Module {
    std::string name;
    ModuleKind kind;
};

// All modules in their order.
std::vector<Module> modules_of(const DecoderConfig& config) {
    using enum ModuleKind;
    std::vector<Module> modules = {{"tok_embeddings", embedding}};
    for (int64_t i = 0; i < config.layers; ++i) modules.push_back({fmt::format("layers.{}", i), layer});
    modules.push_back({"norm", norm});
    modules.push_back({"output", output});
    for (int64_t depth = 0; depth < config.mtp.layers; ++depth)
        modules.push_back({fmt::format("mtp_layers.{}", depth), mtp_layer});
    return modules;
}

// Adds the module to a stage, whose list begins with `first`.
void add_module(DecoderPart& part, const Module& module, size_t stage, const std::string& first) {
    const auto refuse_without = [&](const char* other) {
        throw ConfigError("{}: stage {}: \"{}\" is not in the stage of \"{}\"; put both into one stage",
                          option, stage, module.name, other);
    };
    switch (module.kind) {
        case ModuleKind::embedding: part.embedding = true; break;
        case ModuleKind::layer: ++part.last_layer; break;
        case ModuleKind::norm: break;
        case ModuleKind::output:
            if (first == module.name) refuse_without("norm");
            part.head = true;
            break;
        case ModuleKind::mtp_layer:
            if (!part.head) refuse_without("output");
            break;
    }
}

std::string known_modules(const DecoderConfig& config) {
    return fmt::format(
        "tok_embeddings, layers.0 to layers.{}, norm, output{}", config.layers - 1,
        config.mtp.layers == 0 ? "" : fmt::format(", mtp_layers.0 to mtp_layers.{}", config.mtp.layers - 1));
}

}  // namespace

std::vector<DecoderPart> split_by_names(const DecoderConfig& config,
                                        const std::vector<std::vector<std::string>>& lists) {
    const std::vector<Module> modules = modules_of(config);
    std::vector<std::string> names;
    for (const Module& module : modules) names.push_back(module.name);
    std::vector<DecoderPart> parts(lists.size());
    int64_t layer = 0;
    split_modules(names, known_modules(config), lists, [&](size_t stage, size_t first, size_t module) {
        if (module == first) parts[stage].first_layer = parts[stage].last_layer = layer;
        add_module(parts[stage], modules[module], stage, names[first]);
        layer = parts[stage].last_layer;
    });
    return parts;
}

}  // namespace coeus
