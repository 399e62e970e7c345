// SPDX-License-Identifier: Apache-2.0
// The files of the folder machines, which are embedded in the program (cmake/embedded.cmake).
#pragma once

#include <map>
#include <string>

namespace coeus {

/// Content by file name: "h100-sxm.toml".
const std::map<std::string, std::string>& machine_files();

}  // namespace coeus
