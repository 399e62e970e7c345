// SPDX-License-Identifier: Apache-2.0
// Where libraries that are loaded when the program runs may be.
#pragma once

#include <string>
#include <vector>

namespace coeus {

/// Paths for dlopen, to be tried in this order: the one that the environment variable `variable` names,
/// alone; else its name, which the system's loader looks for, and the file of that name in
/// lib/python*/site-packages/`folder` of the active Python environment (VIRTUAL_ENV).
std::vector<std::string> library_paths(const char* variable, const std::string& name,
                                       const std::string& folder);

}  // namespace coeus
