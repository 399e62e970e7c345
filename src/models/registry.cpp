// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/registry.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/family_names.hpp"

#include <algorithm>

namespace coeus {

// The families: NAME_family() is in the family's own file. If two families share an architecture and the deck
// of a folder names neither, the later one takes it.
#define COEUS_EACH_FAMILY(DO) \
    DO(llama2)                \
    DO(llama3)

#define COEUS_DECLARE_FAMILY(name) ModelFamily name##_family();
COEUS_EACH_FAMILY(COEUS_DECLARE_FAMILY)
#undef COEUS_DECLARE_FAMILY

const std::vector<ModelFamily>& model_families() {
#define COEUS_MAKE_FAMILY(name) name##_family(),
    static const std::vector<ModelFamily> families = {COEUS_EACH_FAMILY(COEUS_MAKE_FAMILY)};
#undef COEUS_MAKE_FAMILY
    return families;
}

const std::string& default_family() {
    static const std::string name = "llama3";
    return name;
}

std::vector<std::string> family_names() {
    std::vector<std::string> names;
    for (const ModelFamily& family : model_families()) names.push_back(family.name);
    return names;
}

// torchtitan's other families; a deck of one of them is told so by name.
const std::vector<std::string>& families_not_built() {
    static const std::vector<std::string> names = {"llama4",  "deepseek_v3", "qwen3",
                                                   "gpt_oss", "flux",        "llama3_ft"};
    return names;
}

const ModelFamily& find_family(std::string_view name) {
    for (const ModelFamily& family : model_families())
        if (family.name == name) return family;
    const std::vector<std::string> names = family_names();
    const std::vector<std::string>& unbuilt = families_not_built();
    if (std::find(unbuilt.begin(), unbuilt.end(), name) != unbuilt.end())
        throw ConfigError("model.name = \"{}\": this model is not built yet; built are {}", name,
                          join(names, ", "));
    const std::string near = nearest_name(name, names);
    throw ConfigError("model.name = \"{}\": no such model; {}known are {}", name,
                      near.empty() ? "" : "did you mean \"" + near + "\"? ", join(names, ", "));
}

const DecoderConfig& find_flavor(const ModelFamily& family, std::string_view flavor) {
    std::vector<std::string> names;
    for (const DecoderConfig& config : family.flavors) {
        if (config.flavor == flavor) return config;
        names.push_back(config.flavor);
    }
    const std::string near = nearest_name(flavor, names);
    throw ConfigError(
        "model.flavor = \"{}\": {} has no such flavour; {}known are {}, or \"hf\" for the shapes of "
        "config.json",
        flavor, family.name, near.empty() ? "" : "did you mean \"" + near + "\"? ", join(names, ", "));
}

}  // namespace coeus
