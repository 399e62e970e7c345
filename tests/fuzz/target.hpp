// SPDX-License-Identifier: Apache-2.0
// A fuzzing target. For each reader, one file of tests/fuzz defines read_input() and seeds(). libfuzzer.cpp
// calls them with inputs that libFuzzer finds (`make fuzz`); replay.cpp calls them with a bounded number of
// random inputs (`make test`).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace coeus::fuzz {

/// Reads the input. A wrong input must end with a ConfigError. Anything else (another exception, a crash, a
/// hang, heavy use of memory) is a finding.
void read_input(std::string_view input);
/// Small valid inputs to begin with.
std::vector<std::string> seeds();

/// A folder of this process, removed when the process ends.
const std::filesystem::path& scratch();
/// Writes a file into scratch() and returns its path.
std::string write_scratch(const std::string& name, std::string_view content);
std::string read_scratch(const std::string& name);

/// Calls read_input() and ignores its ConfigErrors; any other exception ends the process with a message.
void check_input(std::string_view input);

}  // namespace coeus::fuzz
