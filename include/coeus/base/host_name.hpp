// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace coeus {

/// What the system calls this host; "" if it does not say.
std::string host_name();

}  // namespace coeus
