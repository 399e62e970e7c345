// SPDX-License-Identifier: Apache-2.0
// A command line as tests of options give it.
#pragma once

#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"

#include <string>
#include <utility>
#include <vector>

namespace coeus::test {

// A real run needs data, which these tests do not have.
inline CommandLine parsed(std::vector<std::string> arguments) {
    arguments.push_back("--training.dataset_path=x.h5");
    return parse_command_line(arguments);
}

inline Config config_of(std::vector<std::string> arguments) {
    return parsed(std::move(arguments)).config;
}

// The message of the ConfigError, or "no error".
inline std::string error_of(std::vector<std::string> arguments) {
    try {
        parsed(std::move(arguments));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace coeus::test
