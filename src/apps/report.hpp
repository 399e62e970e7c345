// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int report(const Arguments& arguments);
Flags report_help();

}  // namespace coeus::apps
