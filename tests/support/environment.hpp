// SPDX-License-Identifier: Apache-2.0
// A variable of the environment for as long as a test needs it.
#pragma once

#include <cstdlib>

namespace coeus::test {

/// Sets a variable, and removes it at the end. Without a value (null), it does neither.
class EnvironmentVariable {
public:
    EnvironmentVariable(const char* name, const char* value) : name_(value ? name : nullptr) {
        if (value) setenv(name, value, 1);
    }
    ~EnvironmentVariable() {
        if (name_) unsetenv(name_);
    }
    EnvironmentVariable(const EnvironmentVariable&) = delete;
    EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

private:
    const char* name_;
};

}  // namespace coeus::test
