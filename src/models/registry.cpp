// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/registry.hpp"

#include "coeus/base/text.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

namespace coeus {

// The families: NAME_family() is in the family's own file. If two families can read an architecture and the
// deck names neither, the later one reads it.
#define COEUS_EACH_FAMILY(DO) \
    DO(cohere2)               \
    DO(cwm)                   \
    DO(deepseek_v3)           \
    DO(dots1)                 \
    DO(ernie4_5)              \
    DO(exaone4)               \
    DO(gemma3)                \
    DO(glm4)                  \
    DO(glm4_moe)              \
    DO(glm4_moe_lite)         \
    DO(gpt_oss)               \
    DO(granite)               \
    DO(llama2)                \
    DO(llama3)                \
    DO(llama4)                \
    DO(ministral3)            \
    DO(mistral)               \
    DO(mixtral)               \
    DO(olmo2)                 \
    DO(olmo3)                 \
    DO(olmoe)                 \
    DO(phi3)                  \
    DO(qwen2)                 \
    DO(qwen3)                 \
    DO(seed_oss)              \
    DO(smollm3)

#define COEUS_DECLARE_FAMILY(name) ModelFamily name##_family();
COEUS_EACH_FAMILY(COEUS_DECLARE_FAMILY)
#undef COEUS_DECLARE_FAMILY

namespace {

std::vector<ModelFamily>& families() {
#define COEUS_MAKE_FAMILY(name) name##_family(),
    static std::vector<ModelFamily> all = {COEUS_EACH_FAMILY(COEUS_MAKE_FAMILY)};
#undef COEUS_MAKE_FAMILY
    return all;
}

}  // namespace

const std::vector<ModelFamily>& model_families() {
    return families();
}

void register_family(ModelFamily family) {
    require(!family.name.empty() && !family.flavors.empty() && family.init,
            "a family has a name, a flavour, and initial values");
    const bool reads = family.hub_keys && family.hub_places && family.hub_ignores;
    const bool reads_not = !family.hub_keys && !family.hub_places && !family.hub_ignores;
    require(family.architectures.empty() ? reads_not : reads,
            "a family has architectures and all three functions for Hugging Face folders, or none of them");
    require(family.model_types.empty() || family.model_types.size() == family.architectures.size(),
            "a family has a model_type for each of its architectures, or for none");
    std::vector<std::string> taken = family_names();
    taken.insert(taken.end(), families_not_built().begin(), families_not_built().end());
    for (const OtherFamilyName& other : other_family_names()) taken.emplace_back(other.name);
    if (std::ranges::find(taken, family.name) != taken.end())
        throw ConfigError("a model family cannot be registered as \"{}\": this name is taken, as are {}",
                          family.name, join(taken, ", "));
    for (DecoderConfig& flavor : family.flavors) flavor.family = family.name;
    families().push_back(std::move(family));
    try {  // a valid model is one that its family can build
        for (const DecoderConfig& flavor : families().back().flavors) flavor.validate();
    } catch (...) {
        families().pop_back();
        throw;
    }
}

std::vector<std::string> family_names() {
    std::vector<std::string> names;
    for (const ModelFamily& family : model_families()) names.push_back(family.name);
    return names;
}

// The other families of torchtitan. A deck for one of them is refused with its name.
const std::vector<std::string>& families_not_built() {
    static const std::vector<std::string> names = {"flux"};
    return names;
}

const std::vector<OtherFamilyName>& other_family_names() {
    static const std::vector<OtherFamilyName> names = {
        {"llama3_ft", "llama3",
         "its replica groups, which may fail, are parallelism.data_parallel_replicate_degree here; a job "
         "that "
         "loses a node is queued again and resumes from its checkpoint"}};
    return names;
}

const ModelFamily& find_family(std::string_view name) {
    for (const OtherFamilyName& other : other_family_names())
        if (name == other.name) name = other.family;
    for (const ModelFamily& family : model_families())
        if (family.name == name) return family;
    const std::vector<std::string> names = family_names();
    const std::vector<std::string>& unbuilt = families_not_built();
    if (std::find(unbuilt.begin(), unbuilt.end(), name) != unbuilt.end())
        throw ConfigError("model.name = \"{}\": this model is not implemented yet; implemented: {}", name,
                          join(names, ", "));
    const std::string near = nearest_name(name, names);
    throw ConfigError("model.name = \"{}\": there is no such model; {}known are {}", name,
                      near.empty() ? "" : "did you mean \"" + near + "\"? ", join(names, ", "));
}

const ModelFamily& find_hub_family(std::string_view name) {
    const ModelFamily& family = find_family(name);
    if (!family.hub_keys)
        throw ConfigError("model.name = \"{}\": this family has no form in Hugging Face folders", name);
    return family;
}

namespace {

// 7e9 for "7B"; 0 if the name is not a size.
double size_of(std::string_view flavor) {
    double number = 0;
    const auto [end, failed] = std::from_chars(flavor.data(), flavor.data() + flavor.size(), number);
    const std::string_view unit = flavor.substr(size_t(end - flavor.data()));
    if (failed != std::errc() || !(number > 0) || unit.size() != 1) return 0;
    switch (unit[0]) {
        case 'm':
        case 'M': return number * 1e6;
        case 'b':
        case 'B': return number * 1e9;
        case 't':
        case 'T': return number * 1e12;
        default: return 0;
    }
}

// The flavour nearest in size if the name is a size, else the one with the nearest name; "" if there is none.
std::string nearest_flavor(std::string_view flavor, const std::vector<std::string>& names) {
    const double wanted = size_of(flavor);
    if (wanted == 0) return nearest_name(flavor, names);
    std::string best;
    for (const std::string& name : names)
        if (size_of(name) > 0 && (best.empty() || std::fabs(std::log(size_of(name) / wanted)) <
                                                      std::fabs(std::log(size_of(best) / wanted))))
            best = name;
    return best.empty() ? nearest_name(flavor, names) : best;
}

// " (7B is a flavour of llama2)" if another family has the flavour, whatever its letters' case; else "".
std::string family_that_has(std::string_view flavor) {
    const auto is_same = [](char a, char b) { return std::toupper(uint8_t(a)) == std::toupper(uint8_t(b)); };
    for (const ModelFamily& family : model_families())
        for (const DecoderConfig& config : family.flavors)
            if (std::ranges::equal(config.flavor, flavor, is_same))
                return fmt::format(" ({} is a flavour of {})", config.flavor, family.name);
    return "";
}

}  // namespace

const DecoderConfig& find_flavor(const ModelFamily& family, std::string_view flavor) {
    std::vector<std::string> names;
    for (const DecoderConfig& config : family.flavors) {
        if (config.flavor == flavor) return config;
        names.push_back(config.flavor);
    }
    const std::string near = nearest_flavor(flavor, names);
    throw ConfigError(
        "model.flavor = \"{}\": {} has no such flavour{}; {}known are {}, or \"hf\" for the shapes of "
        "config.json",
        flavor, family.name, family_that_has(flavor), near.empty() ? "" : "did you mean \"" + near + "\"? ",
        join(names, ", "));
}

}  // namespace coeus
