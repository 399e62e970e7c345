// SPDX-License-Identifier: Apache-2.0
// Errors of one host: the same deck and data may be without them on another.
#pragma once

#include "coeus/base/error.hpp"

namespace coeus {

/// This user may not read or write a file here.
class PermissionError : public ConfigError {
    using ConfigError::ConfigError;
};

/// True if a check that throws this error may succeed on another host: the system failed (SystemError and
/// errors of the standard library), or this user may not use a file. False if deck or data are wrong.
inline bool is_of_this_host(const std::runtime_error& error) {
    return dynamic_cast<const ConfigError*>(&error) == nullptr ||
           dynamic_cast<const PermissionError*>(&error) != nullptr;
}

}  // namespace coeus
