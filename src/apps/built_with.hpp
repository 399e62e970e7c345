// SPDX-License-Identifier: Apache-2.0
// Compiler, flags and libraries of the build, which only CMake knows (cmake/built_with.cmake).
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace coeus::apps {

/// One pair for the compiler, its flags, each library and CUDA: its name, and its version and path.
std::vector<std::pair<std::string, std::string>> built_with();

}  // namespace coeus::apps
