// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int convert(const Arguments& arguments);
Flags convert_help();

}  // namespace coeus::apps
