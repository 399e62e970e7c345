// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <source_location>
#include <string>

namespace coeus {

/// The message of an error. Replaces the two messages of the standard library that do not help a user:
/// "std::bad_alloc", and that of a thread that the system refuses to start.
std::string text_of(const std::exception& error);

/// Whether a value of errno says that a path cannot be right, whatever the machine does: a loop of links, a
/// name that is too long, a file where a folder must be, a folder where a file must be. That is a mistake of
/// the user.
bool blames_path(int code);

/// Throws a ConfigError if the value of errno blames the path, else a SystemError. `message`: with path and
/// reason.
[[noreturn]] void fail_at_path(const std::string& message, int code,
                               std::source_location where = std::source_location::current());

}  // namespace coeus
