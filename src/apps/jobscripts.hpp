// SPDX-License-Identifier: Apache-2.0
// The files of the folder jobscripts, which the program has within itself (cmake/jobscripts.cmake).
#pragma once

#include <map>
#include <string>

namespace coeus::apps {

/// By path below jobscripts: "hyak/train.sbatch".
const std::map<std::string, std::string>& jobscripts();

}  // namespace coeus::apps
