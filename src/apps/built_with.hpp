// SPDX-License-Identifier: Apache-2.0
// What the build was made with, which only CMake knows (cmake/built_with.cmake).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace coeus::apps {

/// Compiler, flags, libraries, CUDA: a name, and version and place.
std::vector<std::pair<std::string, std::string>> built_with();

}  // namespace coeus::apps
