// SPDX-License-Identifier: Apache-2.0
// Unique names for runs and their files.
#pragma once

#include <string>

namespace coeus {

/// 16 hexadecimal digits from the operating system's random numbers, so that no two processes draw the same
/// ones, on one host or on several. SystemError if the system returns none.
std::string random_id();

}  // namespace coeus
