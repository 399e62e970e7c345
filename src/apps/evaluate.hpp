// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int evaluate(const Arguments& arguments);
Flags evaluate_help();

}  // namespace coeus::apps
