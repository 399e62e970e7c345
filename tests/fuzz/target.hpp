// SPDX-License-Identifier: Apache-2.0
// What a fuzzing target is: one file of tests/fuzz for each reader defines these two functions. libfuzzer.cpp
// calls them with inputs that libFuzzer finds (`make fuzz`), replay.cpp with a bounded number of random ones
// (`make test`).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace coeus::fuzz {

/// Reads the input as its reader does. What is wrong with it must be a ConfigError; anything else (another
/// exception, a crash, a hang, much memory) is a finding.
void read_input(std::string_view input);
/// Small inputs that are right, to begin with.
std::vector<std::string> seeds();

/// A folder of this process, removed at its end.
const std::filesystem::path& scratch();
/// Writes a file into it; the path.
std::string write_scratch(const std::string& name, std::string_view content);
std::string read_scratch(const std::string& name);

/// read_input() without its ConfigErrors; ends the process with a message for other exceptions.
void check_input(std::string_view input);

}  // namespace coeus::fuzz
