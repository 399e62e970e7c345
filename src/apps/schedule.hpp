// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int schedule(const Arguments& arguments);
Flags schedule_help();

}  // namespace coeus::apps
