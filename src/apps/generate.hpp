// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int generate(const Arguments& arguments);
Flags generate_help();

}  // namespace coeus::apps
