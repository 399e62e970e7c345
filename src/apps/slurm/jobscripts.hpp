// SPDX-License-Identifier: Apache-2.0
// The files of the folder jobscripts, which are embedded in the program (cmake/jobscripts.cmake).
#pragma once

#include <map>
#include <string>

namespace coeus::apps {

/// Content by path inside jobscripts: "hyak/train.sbatch".
const std::map<std::string, std::string>& jobscripts();

}  // namespace coeus::apps
