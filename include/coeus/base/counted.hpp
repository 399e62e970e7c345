// SPDX-License-Identifier: Apache-2.0
// Numbers of things, for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coeus {

/// "1 line", "1,024 lines". `many`: the plural if it is not `one` with an s.
std::string counted(int64_t count, std::string_view one, std::string_view many = "");

}  // namespace coeus
