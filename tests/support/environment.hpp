// SPDX-License-Identifier: Apache-2.0
// A variable of the environment for as long as a test needs it.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace coeus::test {

/// Sets a variable, and sets it back at the end. Without a value (null), it does neither.
class EnvironmentVariable {
public:
    EnvironmentVariable(const char* name, const char* value) : name_(value ? name : nullptr) {
        if (!value) return;
        if (const char* const before = std::getenv(name)) before_ = before;
        setenv(name, value, 1);
    }
    ~EnvironmentVariable() {
        if (name_ && before_) setenv(name_, before_->c_str(), 1);
        if (name_ && !before_) unsetenv(name_);
    }
    EnvironmentVariable(const EnvironmentVariable&) = delete;
    EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

private:
    const char* name_;
    std::optional<std::string> before_;
};

}  // namespace coeus::test
