// SPDX-License-Identifier: Apache-2.0
// Names that no other process has: of runs and of their files.
#pragma once

#include <string>

namespace coeus {

/// 16 hexadecimal digits, drawn by the operating system. Two processes never get the same ones, on one host
/// or on several. SystemError where the system gives none.
std::string random_id();

}  // namespace coeus
