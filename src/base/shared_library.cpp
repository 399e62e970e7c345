// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/shared_library.hpp"

#include <cstdlib>
#include <filesystem>

namespace coeus {

std::vector<std::string> library_paths(const char* variable, const std::string& name,
                                       const std::string& folder) {
    if (const char* path = std::getenv(variable); path && *path) return {path};
    std::vector<std::string> paths = {name};
    const char* environment = std::getenv("VIRTUAL_ENV");
    std::error_code ignored;
    if (environment && *environment)
        for (const auto& python :
             std::filesystem::directory_iterator(std::string(environment) + "/lib", ignored))
            if (const auto path = python.path() / "site-packages" / folder / name;
                std::filesystem::exists(path, ignored))
                paths.push_back(path.string());
    return paths;
}

}  // namespace coeus
