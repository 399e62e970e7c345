// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "commands.hpp"

namespace coeus::apps {

int products(const Arguments& arguments);
Flags products_help();

}  // namespace coeus::apps
