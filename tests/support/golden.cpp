// SPDX-License-Identifier: Apache-2.0
#include "support/golden.hpp"

#include "coeus/base/error.hpp"
#include "coeus/file/hub_json.hpp"
#include "coeus/models/family.hpp"
#include "coeus/models/hub_model.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>

namespace coeus::test {

namespace fs = std::filesystem;

int compare_golden(const std::vector<GoldenCase>& cases) {
    int compared = 0;
    for (const GoldenCase& c : cases) {
        INFO(c.name);
        const std::string refusal = c.refusal();
        if (refusal.empty()) {
            c.compare();
            ++compared;
        }
        fmt::print("{}: {}\n", c.name, refusal.empty() ? "compared" : "left out: " + refusal);
        std::fflush(stdout);
    }
    if (const size_t left_out = cases.size() - size_t(compared); left_out > 0)
        fmt::print("{} of {} golden cases were left out\n", left_out, cases.size());
    if (compared == 0) skip_unless_required("no golden case was compared");
    return compared;
}

std::string refusal_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const ConfigError& error) {
        const std::string message = error.what();
        if (message.find("not implemented yet") == std::string::npos) throw;
        return message;
    }
    return "";
}

std::vector<std::string> golden_folders(const std::string& name) {
    const fs::path folder = golden(name);
    std::vector<std::string> found;
    if (folder.empty()) return found;
    for (const std::string& entry : files_in(folder))
        if (fs::is_directory(folder / entry)) found.push_back(name + "/" + entry);
    return found;
}

std::vector<std::string> golden_models() {
    std::vector<std::string> all = golden_folders("models");
    std::ranges::copy(golden_folders("families"), std::back_inserter(all));
    return all;
}

std::string unknown_architecture(const fs::path& folder) {
    const std::string architecture =
        hub_architecture(model_families(), read_hub_config(folder.string()).root());
    const std::vector<std::string> known = hub_architectures();
    return std::ranges::find(known, architecture) == known.end()
               ? "no family has the architecture " + architecture
               : "";
}

}  // namespace coeus::test
