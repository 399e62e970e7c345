// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../commands.hpp"

namespace coeus::apps {

int sbatch(const Arguments& arguments);
Flags sbatch_help();

}  // namespace coeus::apps
