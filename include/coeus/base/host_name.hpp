// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace coeus {

/// The name of this host; empty if the system does not give one.
std::string host_name();

}  // namespace coeus
