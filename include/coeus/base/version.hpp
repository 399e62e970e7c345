// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace coeus {

/// "0.2.0"
const char* version();
/// Compiler, build type and target processor of this build: "GCC 12.2.0, Release, -march=native".
std::string build_description();
/// "Release", "Debug", ...
std::string build_type();

}  // namespace coeus
