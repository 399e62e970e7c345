// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int run_detokenize(const Arguments& arguments);
Flags detokenize_help();

}  // namespace coeus::apps
