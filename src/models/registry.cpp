// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/registry.hpp"

#include "coeus/base/text.hpp"
#include "llama.hpp"

#include <algorithm>

namespace coeus {

namespace {

// torchtitan's other families; a deck of one of them is told so by name.
const std::vector<std::string> not_built = {"deepseek_v3", "gpt_oss", "llama4", "qwen3", "flux", "llama3_ft"};

}  // namespace

const std::vector<ModelFamily>& model_families() {
    static const std::vector<ModelFamily> families = {llama2_family(), llama3_family()};
    return families;
}

const ModelFamily& find_family(std::string_view name) {
    std::vector<std::string> names;
    for (const ModelFamily& family : model_families()) {
        if (family.name == name) return family;
        names.push_back(family.name);
    }
    if (std::find(not_built.begin(), not_built.end(), name) != not_built.end())
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
