// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/shared_library.hpp"

#include "coeus/base/error.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <utility>

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

std::string first_loadable(const std::vector<std::string>& paths) {
    for (const std::string& path : paths)
        if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return path;
    return paths.front();
}

SharedLibrary::SharedLibrary(std::string path, std::string name, std::string version)
    : path_(std::move(path)),
      name_(std::move(name)),
      version_(std::move(version)),
      handle_(dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw ConfigError("{} cannot be loaded: {}", name_, dlerror());
}

void* SharedLibrary::address_of(const char* name) const {
    return dlsym(handle_, name);
}

void SharedLibrary::require_found(const char* name, bool found) const {
    if (!found) throw ConfigError("{} is not {} {}: it has no function {}", path_, name_, version_, name);
}

}  // namespace coeus
