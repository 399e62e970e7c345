// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace coeus {

/// The message of an error. Replaces the two messages of the standard library that do not help a user:
/// "std::bad_alloc", and that of a thread that the system refuses to start.
std::string text_of(const std::exception& error);

}  // namespace coeus
