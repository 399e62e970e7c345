// SPDX-License-Identifier: Apache-2.0
// SharedLibrary: a library that is located and loaded at run time, and whose functions are looked up by name.
#pragma once

#include <string>
#include <vector>

namespace coeus {

/// The paths to try, in this order. If the environment variable `variable` is set, its value is the only one.
/// Otherwise they are the library's name, which the system's loader resolves, and the file of that name in
/// lib/python*/site-packages/`folder` of the active Python environment (VIRTUAL_ENV).
std::vector<std::string> library_paths(const char* variable, const std::string& name,
                                       const std::string& folder);
/// The first of the paths that can be loaded; the first path if none can.
std::string first_loadable(const std::vector<std::string>& paths);

/// A loaded library. It stays loaded until the program ends.
class SharedLibrary {
public:
    /// `name` and `version`, such as "NCCL" and "2.13 or newer", are for messages. ConfigError if it cannot
    /// be loaded.
    SharedLibrary(std::string path, std::string name, std::string version);

    /// Looks up a function. ConfigError if the library does not have it.
    template <class Function>
    void find(const char* name, Function*& function) const {
        find_optional(name, function);
        require_found(name, function != nullptr);
    }
    /// Looks up a function; null if the library does not have it.
    template <class Function>
    void find_optional(const char* name, Function*& function) const {
        function = reinterpret_cast<Function*>(address_of(name));
    }

private:
    void* address_of(const char* name) const;
    void require_found(const char* name, bool found) const;
    std::string path_, name_, version_;
    void* handle_;
};

}  // namespace coeus
