// SPDX-License-Identifier: Apache-2.0
// SharedLibrary: one that is looked for and loaded when the program runs, by the names of its functions.
#pragma once

#include <string>
#include <vector>

namespace coeus {

/// Paths to be tried in this order: the one that the environment variable `variable` names, alone; else its
/// name, which the system's loader looks for, and the file of that name in lib/python*/site-packages/`folder`
/// of the active Python environment (VIRTUAL_ENV).
std::vector<std::string> library_paths(const char* variable, const std::string& name,
                                       const std::string& folder);
/// The first of them that can be loaded; none can: the first.
std::string first_loadable(const std::vector<std::string>& paths);

/// Stays loaded until the program ends.
class SharedLibrary {
public:
    /// Name and version, "NCCL" and "2.13 or newer", are for messages. ConfigError where it cannot be loaded.
    SharedLibrary(std::string path, std::string name, std::string version);

    /// ConfigError where it has no function of that name.
    template <class Function>
    void find(const char* name, Function*& function) const {
        find_optional(name, function);
        require_found(name, function != nullptr);
    }
    /// Null where it has none.
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
