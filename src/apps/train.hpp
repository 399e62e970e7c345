// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int train(const Arguments& arguments);
Flags train_help();

}  // namespace coeus::apps
