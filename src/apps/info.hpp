// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int info(const Arguments& arguments);
Flags info_help();

}  // namespace coeus::apps
